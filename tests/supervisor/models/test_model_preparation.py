"""How a load request becomes all that a model's processes need, and why it may not."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pierhead.contract.artifact import Artifact
from pierhead.errors import Code, ServingError
from pierhead.settings import PortRange, Settings
from pierhead.supervisor.memory_use import MemoryUse
from pierhead.supervisor.models.preparation import Preparer, find_model_folder
from pierhead.supervisor.models.publication import Publication
from pierhead.supervisor.plan import Inputs
from pierhead.supervisor.ports import PortPool
from pierhead.supervisor.requirements import Requirements
from pierhead.supervisor.run_folder import RunFolder


class FullDisk(Publication):
    """Has no room for a folder."""

    problem: Exception = OSError(errno.ENOSPC, "No space left on device")

    def make_folder(self, _number: int) -> Path:
        raise self.problem


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder that the platform unpacks models into; `a` is one."""
    root = tmp_path / "models"
    version = root / "a" / "model" / "half" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()
    return root


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    (tmp_path / "run").mkdir()
    run = RunFolder(tmp_path / "run", is_private=False)
    run.make_model_folders()
    return run


@pytest.fixture
def ports() -> PortPool:
    """Room for two model servers."""
    return PortPool(PortRange(9000, 9003), lambda _: True)


Make = Callable[..., Preparer]


@pytest.fixture
def make_preparer(root: Path, run: RunFolder, ports: PortPool) -> Make:
    def make(
        publication: Publication | None = None, memory: MemoryUse | None = None, **environ: str
    ) -> Preparer:
        settings = Settings.from_env(
            {"SAGEMAKER_MULTI_MODEL": "true", "SAGEMAKER_BASE_DIR": str(root.parent), **environ}
        )
        inputs = Inputs(
            settings=settings,
            artifact=Artifact(root.parent, (), None),
            run=run,
            servers=(),
            nginx="nginx",
            model_server=None,
            use_nursery=True,
            requirements=Requirements(None, None),
            workers_python="python",
        )
        return Preparer(inputs, publication or Publication(run), ports, lambda: memory)

    return make


def refusal_of(action: Callable[[], object]) -> ServingError:
    with pytest.raises(ServingError) as refusal:
        action()
    return refusal.value


def test_model_is_prepared_in_a_folder_of_its_number(make_preparer: Make, root: Path, run: RunFolder) -> None:
    prepared = make_preparer().prepare(3, "a", f"{root}/a/model")

    assert prepared.folder == run.models / "3"
    assert (prepared.folder / "plan.json").exists()
    assert [spec.name for spec in prepared.specs] == ["a/model-server-1"]
    assert len(prepared.addresses) == 1


def test_ports_run_out_and_come_back(make_preparer: Make, root: Path, run: RunFolder) -> None:
    preparer, url = make_preparer(), f"{root}/a/model"
    first = preparer.prepare(1, "a", url)
    preparer.prepare(2, "b", url)

    assert refusal_of(lambda: preparer.prepare(3, "c", url)).code is Code.RESOURCE_EXHAUSTED
    assert not (run.models / "3").exists()
    preparer.give_back(1, first.addresses)
    assert not (run.models / "1").exists()
    assert preparer.prepare(4, "c", url).addresses == first.addresses


def test_two_models_never_have_the_same_ports(make_preparer: Make, root: Path) -> None:
    preparer, url = make_preparer(), f"{root}/a/model"
    first = preparer.prepare(1, "a", url)
    preparer.give_back(1, first.addresses)

    assert preparer.prepare(2, "a", url).addresses != preparer.prepare(3, "b", url).addresses


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (OSError(errno.ENOSPC, "full"), Code.RESOURCE_EXHAUSTED),
        (OSError(errno.ENOMEM, "full"), Code.RESOURCE_EXHAUSTED),
        (OSError(errno.EMFILE, "full"), Code.RESOURCE_EXHAUSTED),
        (PermissionError(errno.EACCES, "/secret/place"), Code.INTERNAL),
        (OSError("without a number"), Code.INTERNAL),
    ],
)
def test_files_that_cannot_be_written_end_the_load_and_give_the_ports_back(
    make_preparer: Make, root: Path, run: RunFolder, ports: PortPool, problem: OSError, code: Code
) -> None:
    disk = FullDisk(run)
    disk.problem = problem

    refusal = refusal_of(lambda: make_preparer(disk).prepare(1, "a", f"{root}/a/model"))

    assert refusal.code is code
    assert "/secret/place" not in refusal.message
    assert len(ports.take(2)) == 2


def test_other_fault_gives_the_ports_back_too(
    make_preparer: Make, root: Path, run: RunFolder, ports: PortPool
) -> None:
    disk = FullDisk(run)
    disk.problem = ValueError("a fault")

    with pytest.raises(ValueError, match="a fault"):
        make_preparer(disk).prepare(1, "a", f"{root}/a/model")

    assert len(ports.take(2)) == 2


def test_full_memory_refuses_before_anything_is_taken(
    make_preparer: Make, root: Path, run: RunFolder, ports: PortPool
) -> None:
    preparer = make_preparer(memory=MemoryUse(91, 100))

    refusal = refusal_of(lambda: preparer.prepare(1, "a", f"{root}/a/model"))

    assert refusal.code is Code.RESOURCE_EXHAUSTED
    assert list(run.models.iterdir()) == []
    assert len(ports.take(2)) == 2


def test_folder_without_a_model_is_not_found_and_shows_no_tree(make_preparer: Make, root: Path) -> None:
    (root / "b" / "model" / "secret").mkdir(parents=True)

    refusal = refusal_of(lambda: make_preparer().prepare(1, "b", f"{root}/b/model"))

    assert refusal.code is Code.NOT_FOUND
    assert "secret" not in refusal.message


def test_name_that_is_no_utf8_loses_no_port(make_preparer: Make, root: Path, ports: PortPool) -> None:
    odd = os.fsdecode(os.fsencode(root) + b"/b/\xff\xfe/1")
    Path(odd).mkdir(parents=True)
    (Path(odd) / "saved_model.pb").touch()

    with pytest.raises((ServingError, ValueError)):
        make_preparer().prepare(1, "b", f"{root}/b")

    assert len(ports.take(2)) == 2


@pytest.mark.parametrize(
    "url", ["{root}/a/model", "{root}/a", "{root}/a/model/", "{root}/b/../a/model", "{root}//a"]
)
def test_folder_inside_the_root_is_found(root: Path, url: str) -> None:
    (root / "b").mkdir()

    assert find_model_folder(url.format(root=root), root).is_relative_to(root.resolve())


@pytest.mark.parametrize(
    "url",
    [
        "/",
        "/etc",
        "/proc/self",
        "{root}",
        "{root}/",
        "{root}/.",
        "{root}/a/..",
        "{root}/../models",
        "{root}/../other",
        "{root}/../../etc",
        "{root}-other/a",
        "{root}/out",
        "{root}/out/deep",
        "a/model",
        "./a",
        "s3://bucket/a",
        "file://{root}/a",
        "{root}/a\0",
        "{root}/loop",
        "{root}/" + 300 * "n",
        "/" + 5000 * "n/",
    ],
    ids=lambda url: url[:24],
)
def test_folder_outside_the_root_is_refused(root: Path, url: str) -> None:
    (root / "out").symlink_to(root.parent)
    (root / "loop").symlink_to("loop")
    (root.parent / "other").mkdir()

    assert refusal_of(lambda: find_model_folder(url.format(root=root), root)).code in (
        Code.INVALID_ARGUMENT,
        Code.NOT_FOUND,
    )


@pytest.mark.parametrize("name", ["nope", "a/model/half/1/saved_model.pb"])
def test_folder_that_is_not_there_is_not_found(root: Path, name: str) -> None:
    assert refusal_of(lambda: find_model_folder(f"{root}/{name}", root)).code is Code.NOT_FOUND


def test_root_may_be_a_link_itself(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root)

    assert find_model_folder(f"{link}/a/model", link) == (root / "a" / "model").resolve()

"""The layouts of artifacts: which are served, and what the refusal of the others says."""

from __future__ import annotations

from pathlib import Path

import pytest

from pierhead.contract.artifact import EXPECTED, LARGEST_TREE, Model, draw_tree, find_artifact
from pierhead.errors import ArtifactError


def write(root: Path, *names: str) -> Path:
    """Make empty files, and folders for names that end with a slash."""
    root.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    return root


def refusal(root: Path) -> str:
    with pytest.raises(ArtifactError) as problem:
        find_artifact(root)
    return str(problem.value)


def found(root: Path) -> list[tuple[str, tuple[int, ...]]]:
    return [(model.name, model.versions) for model in find_artifact(root).models]


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        (["saved_model.pb"], ["saved_model.pb is not under an integer version", "1/saved_model.pb"]),
        (["m/saved_model.pb"], ["move it to m/1/saved_model.pb"]),
        (["m/v1/saved_model.pb"], ["m/v1/saved_model.pb is not under an integer version", "v1/"]),
        (["m/0.1/saved_model.pb"], ["m/0.1/saved_model.pb is not under an integer version"]),
        (["m/1/"], ["m/", "1/"]),
        ([], ["(empty)"]),
        (["m.tar.gz"], ["m.tar.gz is still packed"]),
        (["m/-1/saved_model.pb"], ["m/-1/saved_model.pb is not under"]),
        (["m/9223372036854775808/saved_model.pb"], ["is not under an integer version"]),
        (["m/1/saved_model.pb/"], ["saved_model.pb/"]),
        (["code/inference.py"], ["inference.py"]),
        ([".hidden/1/saved_model.pb"], [".hidden/"]),
    ],
)
def test_wrong_layout_is_refused_with_what_is_found_and_expected(
    files: list[str], parts: list[str], tmp_path: Path
) -> None:
    message = refusal(write(tmp_path / "model", *files))

    assert message.startswith(f"no SavedModel found below {tmp_path / 'model'}")
    assert "Found:\n" in message
    assert message.endswith(EXPECTED)
    for part in parts:
        assert part in message


@pytest.mark.parametrize("name", ["m/1/saved_model.pb", "m/1/saved_model.pbtxt"])
def test_graph_may_be_binary_or_text(name: str, tmp_path: Path) -> None:
    assert found(write(tmp_path, name)) == [("m", (1,))]


def test_missing_root_is_refused(tmp_path: Path) -> None:
    assert f"there is no model folder at {tmp_path / 'model'}" == refusal(tmp_path / "model")


def test_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "model")

    assert "there is no model folder" in refusal(tmp_path / "model")


def test_hidden_files_beside_the_version_count_for_nothing(tmp_path: Path) -> None:
    write(tmp_path, "m/1/saved_model.pb", "m/._1", "m/.DS_Store", ".DS_Store", "m/1/._saved_model.pb", "._m")

    assert found(tmp_path) == [("m", (1,))]


def test_hidden_graph_alone_is_no_model(tmp_path: Path) -> None:
    assert "no SavedModel" in refusal(write(tmp_path, "m/1/._saved_model.pb"))


def test_models_are_sorted_by_name_and_versions_by_number(tmp_path: Path) -> None:
    write(tmp_path, "b/10/saved_model.pb", "b/9/saved_model.pb", "a/1/saved_model.pb")

    assert found(tmp_path) == [("a", (1,)), ("b", (9, 10))]


def test_model_has_its_base_path(tmp_path: Path) -> None:
    write(tmp_path, "m/1/saved_model.pb")

    assert (Model("m", tmp_path / "m", (1,)),) == find_artifact(tmp_path).models


def test_zero_is_a_version(tmp_path: Path) -> None:
    assert found(write(tmp_path, "m/0/saved_model.pb")) == [("m", (0,))]


def test_zero_padded_version_is_its_number(tmp_path: Path) -> None:
    assert found(write(tmp_path, "m/0001/saved_model.pb")) == [("m", (1,))]


def test_version_as_long_as_a_time_stamp_is_accepted(tmp_path: Path) -> None:
    assert found(write(tmp_path, "m/1712345678/saved_model.pb")) == [("m", (1712345678,))]


def test_two_folders_of_one_version_count_once(tmp_path: Path) -> None:
    assert found(write(tmp_path, "m/1/saved_model.pb", "m/01/saved_model.pb")) == [("m", (1,))]


def test_version_at_the_root_is_a_model_called_model(tmp_path: Path) -> None:
    root = write(tmp_path / "anything", "1/saved_model.pb", "2/saved_model.pb")

    assert (Model("model", root, (1, 2)),) == find_artifact(root).models


def test_nested_model_has_the_name_of_the_folder_above_its_versions(tmp_path: Path) -> None:
    write(tmp_path, "export/Servo/1712345678/saved_model.pb", "export/Servo/1712345678/variables/")

    assert found(tmp_path) == [("Servo", (1712345678,))]


def test_unfinished_version_beside_a_whole_one_is_left_out(tmp_path: Path) -> None:
    assert found(write(tmp_path, "m/1/saved_model.pb", "m/2/")) == [("m", (1,))]


def test_two_folders_with_one_model_name_are_refused(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, "a/m/1/saved_model.pb", "b/m/1/saved_model.pb"))

    assert message == f"two folders hold a model called 'm': {tmp_path / 'a/m'} and {tmp_path / 'b/m'}"


def test_root_version_beside_a_folder_called_model_is_refused(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, "1/saved_model.pb", "model/1/saved_model.pb"))

    assert "two folders hold a model called 'model'" in message


def test_code_is_found_and_is_no_model(tmp_path: Path) -> None:
    write(tmp_path, "m/1/saved_model.pb", "code/inference.py", "code/1/saved_model.pb")

    artifact = find_artifact(tmp_path)

    assert tmp_path / "code" == artifact.code
    assert [model.name for model in artifact.models] == ["m"]


def test_artifact_without_code_has_none(tmp_path: Path) -> None:
    assert find_artifact(write(tmp_path, "m/1/saved_model.pb")).code is None


def test_model_called_code_below_another_folder_is_a_model(tmp_path: Path) -> None:
    assert found(write(tmp_path, "export/code/1/saved_model.pb")) == [("code", (1,))]


def test_root_may_be_a_symlink(tmp_path: Path) -> None:
    write(tmp_path / "real", "m/1/saved_model.pb", "code/inference.py")
    root = tmp_path / "link"
    root.symlink_to("real")

    artifact = find_artifact(root)

    assert [model.name for model in artifact.models] == ["m"]
    assert root / "code" == artifact.code


def test_version_may_be_a_symlink(tmp_path: Path) -> None:
    write(tmp_path, "store/saved_model.pb", "m/")
    (tmp_path / "m" / "1").symlink_to("../store")

    assert found(tmp_path) == [("m", (1,))]


def test_link_to_a_parent_folder_ends(tmp_path: Path) -> None:
    write(tmp_path, "m/1/variables/")
    (tmp_path / "m" / "loop").symlink_to("..")

    assert "no SavedModel" in refusal(tmp_path)


def test_names_with_blanks_and_other_letters_are_kept(tmp_path: Path) -> None:
    assert found(write(tmp_path, "größe 1/1/saved_model.pb")) == [("größe 1", (1,))]


def test_drawing_is_at_most_a_screen(tmp_path: Path) -> None:
    write(tmp_path, *(f"{number:03}.txt" for number in range(100)))

    lines = draw_tree(tmp_path).splitlines()

    assert len(lines) == LARGEST_TREE + 1
    assert lines[-1] == "  … and 70 more"


def test_drawing_shows_folders_before_their_content(tmp_path: Path) -> None:
    write(tmp_path, "m/1/saved_model.pb", "m/notes.txt")

    assert draw_tree(tmp_path) == "  m/\n    1/\n      saved_model.pb\n    notes.txt"


def test_functions_of_the_toolkit_stand_in_for_a_model(tmp_path: Path) -> None:
    write(tmp_path, "weights.npy", "code/")
    (tmp_path / "code" / "inference.py").write_text("def model_fn(model_dir): pass\n")

    artifact = find_artifact(tmp_path, "inference.py")

    assert ((), tmp_path / "code") == (artifact.models, artifact.code)


def test_program_that_is_not_named_stands_in_for_nothing(tmp_path: Path) -> None:
    write(tmp_path, "code/")
    (tmp_path / "code" / "inference.py").write_text("def model_fn(model_dir): pass\n")

    assert "no SavedModel" in refusal(tmp_path)
    with pytest.raises(ArtifactError, match="no SavedModel"):
        find_artifact(tmp_path, "other.py")


def test_hooks_that_need_a_model_get_a_hint(tmp_path: Path) -> None:
    write(tmp_path, "code/")
    (tmp_path / "code" / "inference.py").write_text("def handler(data, context): pass\n")

    with pytest.raises(ArtifactError) as refused:
        find_artifact(tmp_path, "inference.py")

    assert "code/inference.py could serve without a SavedModel if it defined model_fn" in str(refused.value)
    assert "Found:" in str(refused.value)

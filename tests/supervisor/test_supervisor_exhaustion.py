"""Which last lines of a program say that memory was lacking, and which only look like it."""

from __future__ import annotations

import pytest

from pierhead.supervisor.exhaustion import says_exhausted

FAILED = "Failed to start server. Error: "
ONE = "1 servable(s) did not become available: "
NOT_FOUND = "NOT_FOUND: Could not find meta graph def"
OOM = "OOM when allocating tensor with shape[4096]"
# Names that a user may give to a model, a folder, a tensor or an operation.
HOSTILE = (
    "BLOOM",
    "ROOM",
    "out of memory",
    "MemoryError",
    "RESOURCE_EXHAUSTED",
    "RESOURCE_EXHAUSTED: OOM",
    "std::bad_alloc",
    "[Errno 12] Cannot allocate memory",
    "fork: Cannot allocate memory",
    "error while loading shared libraries: x: a: Cannot allocate memory",
    "x version: 1} due to error: RESOURCE_EXHAUSTED: y",
    "Failed to start server. Error: RESOURCE_EXHAUSTED: y",
)


@pytest.mark.parametrize(
    "line",
    [
        "out of memory",
        "Out of memory",
        "OUT OF MEMORY",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "  what():  std::bad_alloc",
        f"{FAILED}RESOURCE_EXHAUSTED: {OOM}",
        f"{FAILED}Resource exhausted: {OOM}",
        f"{FAILED}UNKNOWN: {ONE}{{{{name: m version: 1}} due to error: RESOURCE_EXHAUSTED: {OOM}}}, }}",
        f"{FAILED}Unknown: {ONE}{{{{{{name: m version: 12}} due to error: Resource exhausted: {OOM}}}, }}",
        f"{FAILED}UNKNOWN: {ONE}{{{{name: a{{b}}: version: 1}} due to error: RESOURCE_EXHAUSTED: {OOM}}}, }}",
        "OSError: [Errno 12] Cannot allocate memory",
        "OSError: [Errno 12] Cannot allocate memory: '/models/m/1/variables'",
        "MemoryError",
        "MemoryError: Unable to allocate 3.00 GiB for an array with shape (805306368,) and data type float32",
        "/usr/bin/tensorflow_model_server: error while loading shared libraries: libtensorflow.so.2: "
        "failed to map segment from shared object: Cannot allocate memory",
        "/bin/sh: 1: Cannot fork: Cannot allocate memory",
        "/start.sh: line 3: fork: Cannot allocate memory",
        "external/org_tensorflow/core/platform/default/env.cc:74] Check failed: ret == 0 (11 vs. 0)"
        "Thread tf_Compute creation via pthread_create() failed.",
        "external/local_tsl/tsl/platform/default/env.cc:74] Check failed: ret == 0 (12 vs. 0) "
        "Thread creation via pthread_create() failed.",
    ],
)
def test_line_that_programs_print_for_want_of_memory_counts(line: str) -> None:
    assert says_exhausted(["loading", line])


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(
    "line",
    [
        "model {name} is loaded",
        "loading {name}",
        "Successfully loaded servable version {{name: {name} version: 1}}",
        "cannot open /opt/ml/models/{name}/model: No such file or directory",
        "tensorflow_serving/core/loader_harness.cc:87] Reading SavedModel from: /models/{name}",
        "executor.cc:1197] [/device:CPU:0] node {name} failed",
        FAILED + "UNKNOWN: " + ONE + "{{{{name: {name} version: 1}} due to error: NOT_FOUND: no graph}}, }}",
        FAILED + "UNKNOWN: " + ONE + "{{{{name: m version: 1}} due to error: NOT_FOUND: {name}}}, }}",
        FAILED + "INVALID_ARGUMENT: Illegal to list model {name} multiple times in config list",
        "OSError: [Errno 2] No such file or directory: '{name}'",
        "FileNotFoundError: {name}",
        "KeyError: '{name}'",
        "MemoryError: {name} is missing",
        "/bin/{name}: error while loading shared libraries: libx.so: cannot open shared object file",
        "  what():  {name} is odd",
        "terminate called after throwing an instance of 'x {name}'",
    ],
)
def test_text_that_a_user_chose_never_counts(line: str, name: str) -> None:
    assert not says_exhausted([line.format(name=name)])


def test_only_the_last_line_counts() -> None:
    assert not says_exhausted(["out of memory", "recovered", "no such model"])
    assert not says_exhausted([])


def test_trace_of_a_stack_is_passed_over() -> None:
    trace = [
        "*** Check failure stack trace: ***",
        "    @     0x7f3a10b2 out of memory",
        "Aborted (core dumped)",
    ]

    assert says_exhausted(["terminate called ...", "  what():  std::bad_alloc", "Aborted"])
    assert says_exhausted(["out of memory", *trace])
    assert not says_exhausted(["all is well", *trace])
    assert not says_exhausted(trace)


@pytest.mark.parametrize(
    "line",
    [
        f"{FAILED}UNKNOWN: {NOT_FOUND}",
        f"{FAILED}DEADLINE_EXCEEDED: RESOURCE_EXHAUSTED: {OOM}",
        "a.cc:9] Check failed: ret == 0 (22 vs. 0)Thread tf creation via pthread_create() failed.",
        "W cpu_allocator_impl.cc:81] Allocation of 4294967296 exceeds 10% of free system memory.",
        "out of memory is not what happened",
        " out of memory",
    ],
)
def test_lines_that_come_near_do_not_count(line: str) -> None:
    assert not says_exhausted([line])

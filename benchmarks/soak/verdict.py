"""What must hold of a run, rule by rule; each broken one is a sentence."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.soak.clients import Outcome
from benchmarks.soak.run import Run
from benchmarks.soak.watch import Life

__all__ = ["broken_rules", "growth"]

# A request may be lost from a kill on until the stack was well again, and a moment more.
MOMENT_SECONDS = 1.0
# Judged are lives of at least this length; what is allocated in the first half of one is warm-up.
SHORTEST_LIFE = 100.0
MOST_GROWTH_MEGABYTES = 20.0
MOST_NEW_DESCRIPTORS = 32
MOST_NEW_BYTES = 1 << 20
MOST_STOP_SECONDS = 10.0
SHOWN = 5


def broken_rules(run: Run) -> list[str]:
    """Return a sentence for each rule that the run has broken."""
    return [*_traffic_rules(run), *_process_rules(run), *_end_rules(run)]


def _traffic_rules(run: Run) -> Iterator[str]:
    wrong = [each for each in run.outcomes if each.problem]
    for each in wrong[:SHOWN]:
        yield f"{each.name}: {each.problem}"
    if len(wrong) > SHOWN:
        yield f"{len(wrong) - SHOWN} more requests went wrong"
    stray = [each for each in run.outcomes if each.is_lost and not _was_near_a_kill(run, each)]
    for each in stray[:SHOWN]:
        at = each.began - run.began
        yield f"{each.name}: lost with status {each.status} at {at:.1f} s, away from any kill"
    if not any(each.status == 200 for each in run.outcomes):
        yield "no request was served"


def _was_near_a_kill(run: Run, outcome: Outcome) -> bool:
    ended = outcome.began + outcome.seconds
    return any(
        kill.mended_after is None
        or (outcome.began <= kill.at + kill.mended_after + MOMENT_SECONDS and ended >= kill.at)
        for kill in run.kills
    )


def _process_rules(run: Run) -> Iterator[str]:
    for kill in run.kills:
        if kill.mended_after is None:
            yield f"{kill.name} was killed at {kill.at - run.began:.1f} s, and the stack did not mend"
    for program, lives in run.lives.items():
        for life in lives:
            megabytes, descriptors = growth(life)
            if megabytes > MOST_GROWTH_MEGABYTES:
                yield f"{program} ({life.pid}) grew by {megabytes:.1f} MB in the second half of its life"
            if descriptors > MOST_NEW_DESCRIPTORS:
                yield f"{program} ({life.pid}) opened {descriptors} more files in the second half of its life"
    if len(run.files_at_the_end) > len(run.files_warm):
        yield f"the run folder has new files: {sorted(run.files_at_the_end.keys() - run.files_warm.keys())}"
    if sum(run.files_at_the_end.values()) > sum(run.files_warm.values()) + MOST_NEW_BYTES:
        yield f"the run folder's files grew: {run.files_at_the_end}"


def growth(life: Life) -> tuple[float, int]:
    """Return by how many megabytes and open files a process grew in the second half of its life.

    Compared are medians of the third and the last quarter; a life that is too short grew by nothing.
    """
    if life.seconds < SHORTEST_LIFE:
        return 0.0, 0
    quarter = len(life.samples) // 4
    third, last = life.samples[2 * quarter : 3 * quarter], life.samples[3 * quarter :]
    megabytes, descriptors = (
        statistics.median(getattr(sample, name) for sample in last)
        - statistics.median(getattr(sample, name) for sample in third)
        for name in ("resident", "descriptors")
    )
    return megabytes, int(descriptors)


def _end_rules(run: Run) -> Iterator[str]:
    if run.exit_status != 0:
        yield f"the exit status is {run.exit_status}"
    if run.stop_seconds > MOST_STOP_SECONDS:
        yield f"the stop took {run.stop_seconds:.1f} s"
    if run.orphans:
        yield f"processes are left: {run.orphans}"
    if run.left_over:
        yield f"the run folder holds {run.left_over}"

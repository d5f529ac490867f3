"""Whether a run's length follows from the shapes of its inputs alone.

Such a run may stay in the thread that asks, once runs with inputs of that size were short. A loop that counts
to an input, or a tensor as large as an input says, may be short a thousand times and then take minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["is_steady"]

# Operations that loop, wait, unpack, or take the size of what they make from a tensor's values.
UNSTEADY = frozenset(
    {
        "BatchToSpaceND",
        "Bincount",
        "BroadcastTo",
        "DenseBincount",
        "EagerPyFunc",
        "Empty",
        "Enter",
        "Fill",
        "For",
        "ImageProjectiveTransformV3",
        "InTopKV2",
        "LinSpace",
        "LogSpace",
        "MirrorPad",
        "NextIteration",
        "OneHot",
        "Pad",
        "PadV2",
        "PyFunc",
        "PyFuncStateless",
        "RaggedRange",
        "RaggedTensorToTensor",
        "Range",
        "ReadFile",
        "Recv",
        "ScatterNd",
        "SparseBincount",
        "SparseReshape",
        "SparseToDense",
        "StatelessWhile",
        "Tile",
        "UnsortedSegmentMax",
        "UnsortedSegmentMin",
        "UnsortedSegmentProd",
        "UnsortedSegmentSum",
        "While",
    }
)
UNSTEADY_BEGINNINGS = (
    "Barrier",
    "Decode",
    "Dequeue",
    "IRFFT",
    "Iterator",
    "Map",
    "Multinomial",
    "ParallelMap",
    "Queue",
    "RFFT",
    "Random",
    "Resize",
    "SpaceToBatch",
    "SparseSegment",
    "StatefulRandom",
    "StatefulStandard",
    "StatefulTruncated",
    "StatefulUniform",
    "StatelessMultinomial",
    "StatelessParameterized",
    "StatelessRandom",
    "StatelessTruncated",
    "TensorList",
    "Unstage",
)


def is_steady(graph: Any, outputs: Iterable[str]) -> bool:
    """Return whether nothing that leads to the outputs (`y:0`) of a GraphDef is unsteady."""
    functions = {function.signature.name: function.node_def for function in graph.library.function}
    waiting = list(_leading_to(outputs, {node.name: node for node in graph.node}))
    entered: set[str] = set()
    while waiting:
        node = waiting.pop()
        if node.op in UNSTEADY or node.op.startswith(UNSTEADY_BEGINNINGS):
            return False
        for name in functions.keys() & set(_called(node)) - entered:
            entered.add(name)
            waiting.extend(functions[name])
    return True


def _leading_to(outputs: Iterable[str], nodes: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the nodes of the graph itself that the outputs need."""
    waiting = [_node_name(output) for output in outputs]
    visited = set(waiting)
    while waiting:
        node = nodes.get(waiting.pop())
        if node is None:
            continue
        yield node
        needed = {_node_name(name) for name in node.input} - visited
        visited |= needed
        waiting.extend(needed)


def _called(node: Any) -> Iterator[str]:
    yield node.op
    for attribute in node.attr.values():
        yield attribute.func.name
        yield from (function.name for function in attribute.list.func)


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]

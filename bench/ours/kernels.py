"""The native kernels of the trace engine over columns that are made here."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from profd import _engine
from profd.derive.autograd import find_links
from profd.events import NO_END, NO_SCOPE, Dictionary, EventTable, Kind, Tracks
from profd.tree.forward import EVALUATE_PREFIX

NESTS, FRAME, TIMED, LAUNCH, DEVICE = 1, 2, 4, 16, 32
SEGMENT = 1 << 18
REPEAT = 5

Array = npt.NDArray[Any]


def _rows(count: int, threads: int) -> dict[str, Array]:
    """Rows in begin order, nested on each thread: a frame of 20 us, its children of less."""
    random = np.random.default_rng(1)
    start = np.cumsum(random.integers(0, 500, count))
    return {
        "start": start,
        "end": start + random.integers(100, 20_000, count),
        "thread": random.integers(0, threads, count).astype(np.int32),
    }


def _best(work: Callable[[], object]) -> float:
    """CPU seconds: the kernels run on one thread, as the floors do."""
    taken = []
    for _ in range(REPEAT):
        begin = time.thread_time()
        work()
        taken.append(time.thread_time() - begin)
    return min(taken)


def _tree(rows: dict[str, Array], threads: int) -> None:
    """As the pipeline feeds it: a segment at a time, stacks carried over."""
    builder = _engine.TreeBuilder(threads)
    role = np.full(SEGMENT, NESTS | FRAME | TIMED, np.uint8)
    for at in range(0, len(rows["start"]), SEGMENT):
        part = slice(at, at + SEGMENT)
        start = rows["start"][part]
        builder.feed(start, rows["end"][part], rows["thread"][part], role[: len(start)])
    builder.finish()


def _sorted(rows: dict[str, Array]) -> dict[str, Array]:
    order = _engine.argsort(rows["start"])
    return {name: values[order] for name, values in rows.items()}


def tree(count: int, threads: int) -> list[float]:
    """Seconds of the tree of rows in begin order, and of sort and tree of the same rows unsorted."""
    rows = _rows(count, threads)
    shuffle = np.random.default_rng(2).permutation(count)
    mixed = {name: values[shuffle] for name, values in rows.items()}
    return [_best(lambda: _tree(rows, threads)), _best(lambda: _tree(_sorted(mixed), threads))]


# Eight rows, over and over, in an order of their own each time: three forward ops of two inputs each on one thread, the
# engine's row and a backward function on another, a launch, its kernel, and an allocation or a free.
FORWARD, ENGINE, BACKWARD, LAUNCHING, KERNEL, MEMORY = (0, 1, 2), 3, 4, 5, 6, 7
ROUND = 8
NAMES = (
    *("aten::mm", "aten::add", "aten::mul", f"{EVALUATE_PREFIX}MmBackward0", "MmBackward0"),
    *("cudaLaunchKernel", "gemm", "[memory]"),
)
KINDS = (*[Kind.CPU_OP] * 5, Kind.RUNTIME, Kind.KERNEL, Kind.MEMORY)
BEHIND = 100  # rounds between a forward op and its backward op
WEIGHTS, BLOCKS, RECENT = 500, 4096, 64  # storages: of weights, that the allocator hands out in turn, of these in use


def mixed(count: int) -> dict[str, float]:
    """Seconds to link launches and device rows, to tell tensors apart, and to join backward and forward ops."""
    place, turn = _places(count), np.arange(count) // ROUND
    tracks = Tracks([{"id": 1}], [{"id": number, "process": 0} for number in (1, 2, 7)])
    table = _mixed_table(place, turn)
    return {
        "links": _links(place, turn),
        "tensor ids": _tensors(place, turn),
        "forward-backward": _best(lambda: find_links(table, None, tracks)),
    }


def _places(count: int) -> Array:
    rounds = np.tile(np.arange(ROUND), (count // ROUND, 1))
    places = np.random.default_rng(2).permuted(rounds, axis=1)
    for before, after in ((ENGINE, BACKWARD), (LAUNCHING, KERNEL)):
        first, second = (np.argmax(places == which, axis=1) for which in (before, after))
        late = np.flatnonzero(first > second)
        places[late, first[late]], places[late, second[late]] = after, before
    return places.reshape(-1)


def _mixed_table(place: Array, turn: Array) -> EventTable:
    count = len(place)
    start = np.arange(count, dtype=np.int64) * 300
    sequence, fwd_thread = (np.full(count, NO_END, dtype=np.int64) for _ in range(2))
    forward, backward = place < ENGINE, place == BACKWARD
    sequence[forward] = turn[forward] * 3 + place[forward]
    sequence[backward], fwd_thread[backward] = np.maximum(turn[backward] - BEHIND, 0) * 3, 1
    columns: dict[str, Array] = {
        "name": place.astype(np.int32),
        "kind": np.array(KINDS, dtype=np.uint8)[place],
        "start": start,
        "end": start + 200,
        "process": np.zeros(count, dtype=np.int32),
        "thread": np.array([0, 0, 0, 1, 1, 1, 2, 1], dtype=np.int32)[place],
        "sequence": sequence,
        "fwd_thread": fwd_thread,
        "scope": np.array([0, 0, 0, 0, 1, *[NO_SCOPE] * 3], dtype=np.uint8)[place],
    }
    return EventTable(columns, {"name": Dictionary(list(NAMES))})


def _links(place: Array, turn: Array) -> float:
    count = len(place)
    role = np.array([0] * 5 + [LAUNCH, DEVICE, 0], dtype=np.uint8)[place]
    correlation = np.where(role > 0, turn + 1, 0).astype(np.int64)
    group, depth = np.zeros(count, np.int32), np.zeros(count, np.int32)

    def work() -> None:
        builder = _engine.LinkBuilder()
        for at in range(0, count, SEGMENT):
            part = slice(at, at + SEGMENT)
            builder.feed(correlation[part], group[part], role[part], depth[part])
        builder.finish()

    return _best(work)


def _tensors(place: Array, turn: Array) -> float:
    """Half of the inputs are weights, the others what was allocated lately."""
    random = np.random.default_rng(1)
    inputs = np.repeat(np.flatnonzero(place < ENGINE), 2)
    rows = np.sort(np.concatenate([inputs, np.flatnonzero(place == MEMORY)]), kind="stable")
    memory, of = place[rows] == MEMORY, turn[rows]
    recent = np.maximum(of - random.integers(0, RECENT, len(rows)), 0) % BLOCKS
    weights = BLOCKS + random.integers(0, WEIGHTS, len(rows))
    block = np.where(memory, of % BLOCKS, np.where(random.random(len(rows)) < 0.5, weights, recent))
    storage = (block + 1) * 512
    impl = storage * 8 + random.integers(0, 2, len(rows)) * 64  # a storage has a view now and then
    action = np.where(memory, 1 + of % 2, 0).astype(np.uint8)
    process = np.zeros(len(rows), np.int32)
    return _best(lambda: _engine.tensor_islands(process, action, impl, storage))

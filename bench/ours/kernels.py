"""The native kernels of the trace engine over columns that are made here."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from profd import _engine

NESTS, FRAME, TIMED, LAUNCH, DEVICE = 1, 2, 4, 16, 32
SEGMENT = 1 << 18
REPEAT = 3

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
    taken = []
    for _ in range(REPEAT):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
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


def links(count: int) -> float:
    """Seconds to link launches and device rows, one after the other, by correlation id."""
    correlation = np.arange(count, dtype=np.int64) // 2 + 1
    role = np.where(np.arange(count) & 1, DEVICE, LAUNCH).astype(np.uint8)
    group, depth = np.zeros(count, np.int32), np.zeros(count, np.int32)

    def work() -> None:
        builder = _engine.LinkBuilder()
        for at in range(0, count, SEGMENT):
            part = slice(at, at + SEGMENT)
            builder.feed(correlation[part], group[part], role[part], depth[part])
        builder.finish()

    return _best(work)


def tensors(count: int) -> float:
    """Seconds to tell tensors apart in records of 20,000 storages: eight inputs to an allocation and a free."""
    random = np.random.default_rng(1)
    storage = random.integers(1, 20_000, count) * 512
    impl = storage * 8 + random.integers(0, 3, count)
    action = np.array([0, 0, 0, 0, 0, 0, 0, 0, 1, 2], dtype=np.uint8)[np.arange(count) % 10]
    process = np.zeros(count, np.int32)
    return _best(lambda: _engine.tensor_islands(process, action, impl, storage))

"""Call paths, each once: a name on top of the path of its caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from profd import _engine
from profd.events import NO_ROW, Dictionary
from profd.events.table import Array


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """Numbered. A column has an int64 for each path."""

    names: list[str]  # all different, where paths of several traces are compared
    name: Array  # its place among `names`
    above: Array  # the path of the caller; NO_ROW: there is none

    @classmethod
    def of_names(cls, names: list[str]) -> Self:
        """Paths of one name each, numbered as these names are, which are all different."""
        return cls(names, np.arange(len(names)), np.full(len(names), NO_ROW, dtype=np.int64))

    @classmethod
    def of_calls(cls, names: list[str], name: Array, parent: Array, frames_max: int) -> tuple[Self, Array]:
        """(the paths of all rows of a trace, outermost first; the path of each row).

        `name`: of each row, as of `Paths`. A call deeper than `frames_max` has the path of the one at that depth.
        """
        key = np.ascontiguousarray(name, dtype=np.int32)
        path, above, _, _ = _engine.call_paths(key, _folds_none(names), np.ascontiguousarray(parent))
        first = np.empty(len(above), dtype=np.int64)
        first[path[::-1]] = np.arange(len(path))[::-1]  # of one path the first row is written last
        depth = _depths(above)
        shallow = depth < frames_max
        of_rows = path[_ascending(first[shallow], len(path))]
        order = of_rows[np.argsort(depth[of_rows].astype(np.uint16), kind="stable")]
        place = np.full(len(above) + 1, NO_ROW, dtype=np.int64)  # the last answers for NO_ROW
        place[order] = np.arange(len(order))
        deep = np.flatnonzero(~shallow)
        if len(deep):
            place[deep] = place[_engine.nearest_above(above, shallow.view(np.uint8), deep)]
        return cls(names, key[first[order]].astype(np.int64), place[above[order]]), place[path]

    def __len__(self) -> int:
        return len(self.name)

    def rank_of_names(self, paths: Array) -> Array:
        """For each of these the place of its name in the order of their names."""
        used = np.flatnonzero(np.bincount(self.name[paths], minlength=len(self.names)))
        rank = np.empty(len(self.names), dtype=np.int64)
        rank[sorted(used.tolist(), key=self.names.__getitem__)] = np.arange(len(used))
        ranks: Array = rank[self.name[paths]]
        return ranks

    def frames(self, paths: Array) -> list[list[str]]:
        """The names of each of these, outermost first."""
        return [[self.names[code] for code in codes] for codes in self.codes(paths)]

    def codes(self, paths: Array) -> list[list[int]]:
        """The names of each of these, outermost first, as places among `names`."""
        found: list[list[int]] = [[] for _ in range(len(paths))]
        rows = np.arange(len(paths))
        while len(rows):
            for row, name in zip(rows.tolist(), self.name[paths].tolist(), strict=True):
                found[row].append(name)
            paths = self.above[paths]
            rows, paths = rows[paths != NO_ROW], paths[paths != NO_ROW]
        for frames in found:
            frames.reverse()
        return found


def joined(several: Sequence[Paths]) -> tuple[Paths, list[Array | None]]:
    """(all of them as one, for each the numbers there by its own; None: they are the same).

    Paths of the first keep their numbers; what those after it have besides follows, in their order.
    """
    different = list({id(paths): paths for paths in several}.values())  # those of many traces are the same
    if len(different) == 1:
        return different[0], [None] * len(several)
    names = Dictionary()
    codes = [np.array(names.codes(paths.names), dtype=np.int32)[paths.name] for paths in different]
    before = np.cumsum([0, *map(len, different)])
    above = [
        np.where(paths.above == NO_ROW, NO_ROW, paths.above + at) for paths, at in zip(different, before, strict=False)
    ]
    key = np.concatenate(codes)
    path, over, example, _ = _engine.call_paths(key, _folds_none(names.values), np.concatenate(above))
    order = path[_ascending(example, len(path))]
    number = np.full(len(over) + 1, NO_ROW, dtype=np.int64)  # the last answers for NO_ROW
    number[order] = np.arange(len(order))
    all_of_them = Paths(names.values, key[example[order]].astype(np.int64), number[over[order]])
    places = np.split(number[path], before[1:-1])
    kept = {
        id(paths): None if (own == np.arange(len(own))).all() else own
        for paths, own in zip(different, places, strict=True)
    }
    return all_of_them, [kept[id(paths)] for paths in several]


def _depths(above: Array) -> Array:
    """How many paths are above each: a hop goes twice as far each time."""
    hop = np.append(above, NO_ROW)  # the last answers for NO_ROW
    depth = (hop != NO_ROW).astype(np.int64)
    while (hop != NO_ROW).any():
        depth += depth[hop]
        hop = hop[hop]
    depths: Array = depth[:-1]
    return depths


def _ascending(rows: Array, of: int) -> Array:
    """These rows, each once and below `of`, in order: faster than a sort."""
    among = np.zeros(of, dtype=bool)
    among[rows] = True
    return np.flatnonzero(among)


def _folds_none(names: Sequence[str]) -> Array:
    """For `call_paths`: recursion has a path for each level."""
    return np.zeros(max(len(names), 1), dtype=np.uint8)


class KnownPaths:
    """Paths of one name each, by what was kept of them: those of many traces are the same, and made once."""

    def __init__(self) -> None:
        self._by_words: dict[tuple[int | bytes, ...], Paths | None] = {}

    def of(self, words: pa.Array) -> Paths | None:
        """Paths numbered as these words are, which lack none; None where one is no text, or comes twice."""
        # The bytes tell at once what a comparison of two hundred words would.
        same = len(words), *(buffer.to_pybytes() if buffer else b"" for buffer in words.buffers()[1:])
        if same not in self._by_words:
            self._by_words[same] = _paths_of_words(words)
        return self._by_words[same]


def _paths_of_words(words: pa.Array) -> Paths | None:
    try:
        names = [word.decode("utf-8", "surrogatepass") for word in words.to_pylist()]
    except UnicodeDecodeError:
        return None
    return Paths.of_names(names) if len(set(names)) == len(names) else None

"""What changed between two times of the same key, a path and a type of device, for very many keys at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from profd.events import DeviceType
from profd.events.table import Array
from profd.query.paths import Paths

PLACES: Final = 32  # device types
_DEVICE_LABELS: Final = {int(device): device.label for device in DeviceType}
_LABELS: Final = [_DEVICE_LABELS.get(place, "other") for place in range(PLACES)]
_CHANGES: Final = ("new", "gone", "same", "slower", "faster")
_NEW, _GONE, _SAME, _SLOWER, _FASTER = range(len(_CHANGES))
_MEDIAN_ERROR: Final = 1.2533  # of a median, in standard errors of a mean
# Standard errors that a change must exceed. There are hundreds of rows, and none of them should stand out by chance.
_TOTAL_ERRORS: Final = 2.0
_ROW_ERRORS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Times:
    """Times per step (or in all, where steps are not compared), in ns. Columns of one length."""

    key: Array  # ascending: those of `totals`, then those of `keys_of`
    median: Array
    spread: Array  # as a standard deviation
    count: Array  # calls per step, or in all

    def at(self, keys: Array) -> Times:
        """The times of these keys, which ascend, ours among them: what there is not is 0."""
        place = np.searchsorted(keys, self.key)
        columns = []
        for own in (self.median, self.spread, self.count):
            column = np.zeros(len(keys))
            column[place] = own
            columns.append(column)
        return Times(keys, *columns)


def keys_of(path: Array, device_type: Array) -> Array:
    """A key for each. A damaged file may name any type: those beyond are one, "other"."""
    return path * PLACES + np.minimum(device_type, PLACES - 1)


def totals(key: Array) -> Array:
    """For each of `keys_of` the key of everything on its type of device."""
    found: Array = -1 - key % PLACES
    return found


@dataclass(frozen=True, slots=True)
class Changes:
    """Each key in both, and how it changed. Arrays of one length."""

    before: Times
    after: Times
    delta: Array
    noise: Array | None  # what steps differ by, in ns; None: not known
    change: Array  # of each its place in _CHANGES

    @classmethod
    def of(cls, before: Times, after: Times, steps: Sequence[int] | None) -> Self:
        """`steps`: so many in each, from which the noise between them is known; None: it is not."""
        keys = _all_of(before.key, after.key)
        old, new = before.at(keys), after.at(keys)
        delta = new.median - old.median
        noise = None
        if steps is not None:
            errors = np.where(keys < 0, _TOTAL_ERRORS, _ROW_ERRORS)
            noise = errors * _MEDIAN_ERROR * np.sqrt(old.spread**2 / steps[0] + new.spread**2 / steps[1])
        within = (np.abs(delta) <= (0.0 if noise is None else noise)) | (np.rint(delta) == 0)
        happened = (old.count == 0, new.count == 0, within, delta > 0)
        change = np.select(happened, (_NEW, _GONE, _SAME, _SLOWER), _FASTER)
        return cls(old, new, delta, noise, change)

    @property
    def rows(self) -> int:
        """How many keys are no totals."""
        return len(self.before.key) - self._totals

    @property
    def _totals(self) -> int:
        return int(np.searchsorted(self.before.key, 0))

    def step(self) -> dict[str, Any]:
        """The line of a step, which is the only key."""
        (values,) = self._values(np.arange(1))
        share = _ratio(float(self.delta[0]), float(self.before.median[0]))
        return {"name": "step", "device_type": None, **values, "share": share}

    def totals(self) -> list[dict[str, Any]]:
        """A line for each type of device."""
        return [{"name": "total", **line} for line in self._lines(np.arange(self._totals)[::-1])]

    def largest(self, paths: Paths, most: int, *, by_path: bool) -> list[dict[str, Any]]:
        """At most so many lines, the largest changes first."""
        shown = self._by_size(paths, most)
        frames = paths.frames(self.before.key[shown] // PLACES)
        return [
            {"name": names[-1], "path": names if by_path else None, **line}
            for names, line in zip(frames, self._lines(shown), strict=True)
        ]

    def _by_size(self, paths: Paths, most: int) -> Array:
        """The largest change first; of equal ones what got slower, then by name."""
        rows = np.arange(self._totals, len(self.before.key))
        delta, same = np.rint(self.delta[rows]), self.change[rows] == _SAME
        if len(rows) > most:  # sorting is for those that may be among the first, and their equals
            size = np.where(same, -1 / (1 + np.abs(delta)), np.abs(delta))
            likely = size >= np.partition(size, len(rows) - most)[len(rows) - most]
            rows, delta, same = rows[likely], delta[likely], same[likely]
        key = self.before.key[rows]
        name, device_type = paths.rank_of_names(key // PLACES), _RANK_OF_LABEL[key % PLACES]
        return rows[np.lexsort((key, device_type, name, -delta, -np.abs(delta), same))][:most]

    def _lines(self, keys: Array) -> list[dict[str, Any]]:
        """Lines without a name. `keys`: their places."""
        place = np.where(self.before.key[keys] < 0, -1 - self.before.key[keys], self.before.key[keys] % PLACES)
        lines = zip(place.tolist(), self._values(keys), self.delta[keys].tolist(), strict=True)
        wholes = self._whole_of_each_place()
        return [
            {"device_type": _LABELS[of], **values, "share": _ratio(delta, wholes[of])} for of, values, delta in lines
        ]

    def _whole_of_each_place(self) -> dict[int, float]:
        """Of the types of devices that there are: all time before, or after where there was none."""
        some = slice(self._totals)
        columns = (self.before.key[some], self.before.median[some], self.after.median[some])
        return {-1 - key: old or new for key, old, new in zip(*(column.tolist() for column in columns), strict=True)}

    def _values(self, keys: Array) -> list[dict[str, Any]]:
        noise = [None] * len(keys) if self.noise is None else self.noise[keys].tolist()
        columns = (self.change, self.before.median, self.after.median, self.delta, self.before.count, self.after.count)
        values = zip(*(column[keys].tolist() for column in columns), noise, strict=True)
        return [
            {
                "change": _CHANGES[change],
                "a_ns": round(old),
                "b_ns": round(new),
                "delta_ns": round(delta),
                "noise_ns": None if errors is None else round(errors),
                "ratio": _ratio(new, old),
                "a_count": number(old_count),
                "b_count": number(new_count),
            }
            for change, old, new, delta, old_count, new_count, errors in values
        ]


def _all_of(first: Array, second: Array) -> Array:
    """Both, which ascend, as one that does: a merge, where numpy's union makes a hash table."""
    both = np.sort(np.concatenate([first, second]), kind="stable")
    found: Array = both[np.diff(both, prepend=both[:1] - 1) > 0]
    return found


_RANK_OF_LABEL: Final = np.array([sorted(set(_LABELS)).index(label) for label in _LABELS])


def _ratio(value: float, whole: float) -> float | None:
    return round(value / whole, 6) if whole else None


def number(count: float) -> int | float:
    """Calls per step: whole where they are."""
    return int(count) if count == int(count) else round(count, 3)

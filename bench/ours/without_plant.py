"""What `critical` says of a job without its late rank's plant, beside windows of the same processes that have none."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from profd.answers.ranks.critical import critical_of_capture
from profd.query.captured import Captured

from tests.support import gloo_jobs
from tests.support.importing import import_trace

_DRAWS = 2000


@dataclass(frozen=True)
class Said:
    """Of one window with the plant, in ms: had rank LATE been as the others, the mean step lasted so long."""

    least: float
    most: float
    middle: float | None  # not told


@dataclass(frozen=True)
class Pair:
    """Steps of one job as `critical` plays them, window by window: the mean step of each, in ms.

    Means alone are compared: a gain is a share of all steps together. A share of the median step would be another one,
    since long steps that the host makes are no part of that.
    """

    planted: list[float]
    said: list[Said]  # by `critical`, of the windows with the plant
    rerun: list[float]  # of the windows without it

    @property
    def middle(self) -> float | None:
        """The median of what was told; None where it was not in each window: the others were not the same host."""
        told = [one.middle for one in self.said if one.middle is not None]
        return statistics.median(told) if len(told) == len(self.said) else None

    @property
    def range(self) -> tuple[float, float]:
        """Medians of the shortest and of the longest."""
        return statistics.median(one.least for one in self.said), statistics.median(one.most for one in self.said)

    @property
    def close(self) -> bool:
        """Told, and within 10 % of the rerun, medians over the windows."""
        rerun = statistics.median(self.rerun)
        return self.middle is not None and abs(self.middle - rerun) <= 0.1 * rerun

    @property
    def within(self) -> bool:
        """The rerun lies in the range that was said."""
        least, most = self.range
        return least <= statistics.median(self.rerun) <= most

    def __str__(self) -> str:
        least, most = self.range
        told = "not told" if self.middle is None else f"{self.middle:.1f}"
        return (
            f"{statistics.median(self.planted):.1f}: said {told} ({least:.1f} to {most:.1f}), "
            f"rerun {_between(self.rerun)}"
        )


def pair(kind: str, ranks: int, turns: int) -> Pair:
    """Run a job of as many windows with the plant and without it."""
    with tempfile.TemporaryDirectory() as folder:
        planted, without = (
            [_asked(Path(folder) / f"{which}{number}", files) for number, files in enumerate(windows)]
            for which, windows in enumerate(gloo_jobs.run_in_turns(Path(folder), kind, ranks, turns))
        )
    return Pair([_step_ms(one) for one in planted], [_said(one) for one in planted], [_step_ms(one) for one in without])


def _between(values: Sequence[float]) -> str:
    """The median, and 90 % of medians of windows that are drawn again."""
    drawn = np.median(np.random.default_rng(1).choice(values, (_DRAWS, len(values))), axis=1)
    return f"{statistics.median(values):.1f} ({np.quantile(drawn, 0.05):.1f} to {np.quantile(drawn, 0.95):.1f})"


def _asked(folder: Path, files: Sequence[Path]) -> dict[str, Any]:
    for file in files:
        import_trace(file, folder / file.stem, trace=file.stem, capture="c0123456789ab")
    answer: dict[str, Any] = critical_of_capture(Captured(sorted(folder.iterdir())))
    return answer


def _step_ms(answer: dict[str, Any]) -> float:
    mean: float = answer["path"]["duration_ns"] / answer["steps"]["n"] / 1e6
    return mean


def _said(answer: dict[str, Any]) -> Said:
    """A rank that is not on the path costs nothing."""
    mine = next((one for one in answer["ranks"] if one["rank"] == gloo_jobs.LATE), None)
    step, whole = _step_ms(answer), answer["path"]["duration_ns"]
    if mine is None:
        return Said(step, step, step)
    least, most = (step * mine[f"without_{which}_ns"] / whole for which in ("least", "most"))
    return Said(least, most, None if mine["without_ns"] is None else step * mine["without_ns"] / whole)

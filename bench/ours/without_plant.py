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
class Pair:
    """Steps of one job as `critical` plays them, window by window: the mean step of each, in ms.

    Means alone are compared: a gain is a share of all steps together. A share of the median step would be another one,
    since long steps that the host makes are no part of that.
    """

    planted: list[float]
    said: list[float]  # by `critical`, of the windows with the plant
    rerun: list[float]  # of the windows without it

    @property
    def close(self) -> bool:
        """Within 10 % of the rerun, medians over the windows."""
        said, rerun = statistics.median(self.said), statistics.median(self.rerun)
        return abs(said - rerun) <= 0.1 * rerun

    def __str__(self) -> str:
        return f"{statistics.median(self.planted):.1f}: said {_between(self.said)}, rerun {_between(self.rerun)}"


def pair(kind: str, ranks: int, turns: int) -> Pair:
    """Run a job of as many windows with the plant and without it."""
    with tempfile.TemporaryDirectory() as folder:
        windows = gloo_jobs.run_in_turns(Path(folder), kind, ranks, turns)
        answers = [_asked(Path(folder) / f"window{number}", files) for number, files in enumerate(windows)]
    planted, without = answers[::2], answers[1::2]
    return Pair(
        [_step_ms(one) for one in planted], [_said_ms(one) for one in planted], [_step_ms(one) for one in without]
    )


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


def _said_ms(answer: dict[str, Any]) -> float:
    """The same had rank LATE been as the others; a rank that is not on the path costs nothing."""
    mine = next((one for one in answer["ranks"] if one["rank"] == gloo_jobs.LATE), None)
    step = _step_ms(answer)
    return step * mine["without_ns"] / answer["path"]["duration_ns"] if mine and mine["without_ns"] else step

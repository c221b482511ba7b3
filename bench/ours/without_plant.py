"""What `critical` says of a job without its late rank's plant, beside windows of the same processes that have none."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from profd.answers.ranks.critical import critical_of_capture
from profd.answers.ranks.ranks import ranks_of_capture
from profd.query.captured import Captured

from tests.support import gloo_jobs
from tests.support.importing import import_trace

_DRAWS = 2000


@dataclass(frozen=True)
class Pair:
    """Steps of one job, medians over its windows, in ms."""

    planted: float
    said: float  # by `critical`, of the windows with the plant
    rerun: float  # of the windows without it
    between: tuple[float, float]  # of `rerun`: 90 % of medians of windows that are drawn again

    @property
    def close(self) -> bool:
        """Within 10 % of the rerun."""
        return abs(self.said - self.rerun) <= 0.1 * self.rerun

    def __str__(self) -> str:
        low, high = self.between
        return f"{self.planted:.1f}: said {self.said:.1f}, rerun {self.rerun:.1f} ({low:.1f} to {high:.1f})"


def pair(kind: str, ranks: int, turns: int) -> Pair:
    """Run a job of as many windows with the plant and without it."""
    with tempfile.TemporaryDirectory() as folder:
        windows = gloo_jobs.run_in_turns(Path(folder), kind, ranks, turns)
        captures = [_stored(Path(folder) / f"window{number}", files) for number, files in enumerate(windows)]
        planted, without = captures[::2], [_step_ms(one) for one in captures[1::2]]
        said = [_said_ms(one) for one in planted]
    rerun = statistics.median(without)
    drawn = np.median(np.random.default_rng(1).choice(without, (_DRAWS, len(without))), axis=1)
    between = float(np.quantile(drawn, 0.05)), float(np.quantile(drawn, 0.95))
    return Pair(
        statistics.median(step for step, _ in said), statistics.median(less for _, less in said), rerun, between
    )


def _stored(folder: Path, files: Sequence[Path]) -> Captured:
    for file in files:
        import_trace(file, folder / file.stem, trace=file.stem, capture="c0123456789ab")
    return Captured(sorted(folder.iterdir()))


def _step_ms(capture: Captured) -> float:
    steps: list[int] = [one["step_p50_ns"] for one in ranks_of_capture(capture)["ranks"]]
    return statistics.median(steps) / 1e6


def _said_ms(capture: Captured) -> tuple[float, float]:
    """(a step, the same had rank LATE been as the others); what is played is a share of what was measured."""
    step, answer = _step_ms(capture), critical_of_capture(capture)
    mine = next((one for one in answer["ranks"] if one["rank"] == gloo_jobs.LATE), None)
    less = mine and mine["without_ns"]
    return step, step * (less / answer["path"]["duration_ns"] if less else 1.0)

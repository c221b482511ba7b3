"""How devices spent their time, against HTA 0.5 on public traces: tests/support/hta_reference.py asked it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from profd.answers.ranks.breakdown import breakdown
from profd.answers.work import Work
from profd.events import NO_END, Kind

from tests.support.importing import import_trace
from tests.support.many_ranks import ask

TOLD: dict[str, Any] = json.loads((Path(__file__).parents[4] / "data/hta-0.5.json").read_text())
US = 1000


@pytest.mark.parametrize("name", list(TOLD))
def test_as_hta_says(name: str, trace_data: Path, tmp_path: Path) -> None:
    file = trace_data / f"{name}.json.gz"
    if not file.exists():
        pytest.skip(f"no {file}")
    import_trace(file, tmp_path / "t", capture="c0123456789ab")
    (row,) = ask("ranks", [tmp_path / "t"])["ranks"]
    told, device = TOLD[name], row["device"]
    assert row["rank"] == told["rank"]
    ours = {name: device[f"{key}_ns"] / US for name, key in zip(told["parts"], _PARTS, strict=True)}
    assert ours == pytest.approx(told["parts"], abs=1)
    share = device["overlap_ns"] / device["communication_ns"]
    assert 100 * share == pytest.approx(told["overlap_percent"], abs=0.0051)
    idle = {str(one["stream"]): one for one in device["streams"]}
    assert set(idle) == set(told["idle"])
    for stream, parts in told["idle"].items():
        assert {part: idle[stream][f"{part}_ns"] / US for part in parts} == pytest.approx(parts, abs=1)


_PARTS = ("idle", "compute", "other", "window")


def test_work_of_the_last_step_and_without_a_launch_is_left_out() -> None:
    at = np.array([0, 100, 200, 300])
    kind = np.full(4, Kind.KERNEL)
    work = Work(at, at, at + 50, np.zeros(4), kind, np.full(4, 7), np.array([0, 90, NO_END, 290]))
    found = breakdown(work, np.zeros(4, dtype=bool), 250)
    assert found is not None
    assert (found["window_ns"], found["compute_ns"], found["idle_ns"]) == (150, 100, 50)
    assert breakdown(work, np.zeros(4, dtype=bool), 0) is None

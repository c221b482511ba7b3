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
from tests.support.many_ranks import ask, member
from tests.support.tables import Event

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
    track, launch, device, number = np.full(4, 3), np.array([0, 90, NO_END, 290]), np.zeros(4), np.full(4, 7)
    work = Work(at, at, at + 50, np.zeros(4), kind, track, launch, at, device, number)
    found = breakdown(work, np.zeros(4, dtype=bool), 250)
    assert found is not None
    assert (found["window_ns"], found["compute_ns"], found["idle_ns"]) == (150, 100, 50)
    assert breakdown(work, np.zeros(4, dtype=bool), 0) is None


def test_streams_of_two_devices_may_have_one_number(tmp_path: Path) -> None:
    """GIVEN kernels on stream 7 of two devices WHEN asked THEN each stream has its own gaps."""
    work = [(0, 0, 100), (1, 40, 60), (0, 130, 200), (1, 160, 200)]  # device, from, until
    events = [
        Event("gemm", start, end, Kind.KERNEL, 10 + device, fields={"device": device, "stream": 7})
        for device, start, end in work
    ]
    (row,) = ask("ranks", [member(tmp_path, 0, events)])["ranks"]
    gaps = [(one["device"], one["stream"], one["kernel_wait_ns"]) for one in row["device"]["streams"]]
    assert gaps == [(0, 7, 30), (1, 7, 100)]

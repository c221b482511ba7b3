"""The edges of a trace file: enough to know whose it is and when, on any bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.sources.kineto import trace_file
from profd.sources.kineto.trace_file import edges, optimizer_steps

from tests.support.kineto_client import trace_bytes

CONFIG = {"REQUEST_TRACE_ID": "ab" * 16, "ACTIVITIES_DURATION_MSECS": "500", "ACTIVITIES_LOG_FILE": "/tmp/x.json"}
BASE = 1790857026000000000

# The end of a trace that torch 2.13 wrote.
REAL_TAIL = b"""{"schemaVersion": 1,
  "baseTimeNanoseconds": 1790857026000000000, "traceEvents": [
  {
    "ph": "X", "name": "PyTorch Profiler (0)", "ts": 4468877037530.208, "dur": 200072.376
  },
  {
    "ph": "i",

    "s": "g",
    "name": "Iteration Start: PyTorch Profiler",
    "pid": "Traces",
    "tid": "Trace PyTorch Profiler",
    "ts": 4468877037530.208

  },
  {
    "ph": "i",

    "s": "g",
    "name": "Record Window End",
    "pid": "",
    "tid": "",
    "ts": 4468877237523.596

  }
  ],"traceName": "/tmp/profd-aa_7660.json" }"""


def test_real_tail(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(REAL_TAIL)
    found = edges(tmp_path / "t")
    assert found.complete
    assert not found.empty
    assert found.trace_id is None
    assert found.start_ns == BASE + 4468877037530208
    assert found.end_ns == BASE + 4468877237523596
    assert found.window_ns == 199993388


def test_trace_without_spans_still_names_its_window(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(trace_bytes(CONFIG, events=0))
    found = edges(tmp_path / "t")
    assert found.empty
    assert found.trace_id == CONFIG["REQUEST_TRACE_ID"]
    assert found.window_ns == 500_000_000


def test_large_trace(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(trace_bytes(CONFIG, events=30_000))
    found = edges(tmp_path / "t")
    assert (tmp_path / "t").stat().st_size > 1 << 20
    assert (found.complete, found.empty, found.window_ns) == (True, False, 500_000_000)
    assert found.spans == pytest.approx(30_000, rel=0.05)


@given(st.integers(0, 3000))
def test_cut_anywhere(tmp_path_factory, length: int) -> None:
    path = tmp_path_factory.getbasetemp() / "cut"
    whole = trace_bytes(CONFIG, events=10)
    path.write_bytes(whole[:length])
    assert edges(path).complete is (length >= len(whole))


@given(st.binary(max_size=300))
def test_any_bytes(tmp_path_factory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(b'"baseTimeNanoseconds": 99 "process_labels", "ts": 1' + data)
    edges(path)


def test_impossible_times_are_absent(tmp_path: Path) -> None:
    text = REAL_TAIL.replace(b"4468877037530.208", b"9" * 19).replace(b"4468877237523.596", b'"x"')
    (tmp_path / "t").write_bytes(text)
    found = edges(tmp_path / "t")
    assert (found.start_ns, found.end_ns, found.window_ns) == (None, None, None)


@given(st.lists(st.sampled_from([b'"Optimizer.step#SGD.step"', b'"Optimizer.zero_grad#', b"x"]), max_size=30))
def test_optimizer_steps_across_slices(tmp_path_factory, pieces: list[bytes]) -> None:
    path = tmp_path_factory.getbasetemp() / "steps"
    path.write_bytes(b"".join(pieces))
    wanted = pieces.count(b'"Optimizer.step#SGD.step"')
    slice_bytes = trace_file._SCAN_BYTES
    try:
        trace_file._SCAN_BYTES = 20
        assert optimizer_steps(path, 1000) == wanted
        assert optimizer_steps(path, 1) >= min(1, wanted)
    finally:
        trace_file._SCAN_BYTES = slice_bytes

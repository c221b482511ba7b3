"""Our XSpaces in XProf itself: the PyPI package xprof, in this environment or in that of PROFD_XPROF_PYTHON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from profd.store.reader import TraceReader

from tests.support.importing import import_trace
from tests.support.xspace import exported, store

pytestmark = pytest.mark.slow

PYTHON = os.environ.get("PROFD_XPROF_PYTHON", sys.executable)
SHOW = """
import json, sys
from xprof.convert import raw_to_tool_data
shown = {}
for tool in sys.argv[2:]:
    data, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], tool, {})
    shown[tool] = data.decode() if isinstance(data, bytes) else data
print(json.dumps(shown))
"""


@pytest.fixture(scope="module", autouse=True)
def xprof() -> None:
    done = subprocess.run([PYTHON, "-c", "import xprof.convert.raw_to_tool_data"], capture_output=True)
    if done.returncode:
        pytest.skip("xprof is not installed (pip install xprof); PROFD_XPROF_PYTHON names an environment that has it")


def shown(content: bytes, folder: Path, *tools: str) -> dict[str, str]:
    folder.mkdir()
    path = folder / "host.xplane.pb"
    path.write_bytes(content)
    done = subprocess.run([PYTHON, "-c", SHOW, str(path), *tools], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rows(viewer: str) -> dict[tuple[str, str], list[Any]]:
    """(process, thread) -> its events, in order of time."""
    events = json.loads(viewer)["traceEvents"]
    names: dict[Any, str] = {}
    for event in events:
        if event.get("name") in ("process_name", "thread_name"):
            key = (event["pid"], event["tid"]) if event["name"] == "thread_name" else event["pid"]
            names[key] = event["args"]["name"]
    found: dict[tuple[str, str], list[Any]] = {}
    for event in events:
        if event.get("ph") == "X":
            place = (names[event["pid"]], names.get((event["pid"], event["tid"]), ""))
            found.setdefault(place, []).append((event["ts"], event["dur"], event["name"]))
    return {place: sorted(events) for place, events in found.items()}


def test_a_tensorflow_trace_looks_the_same(trace_data: Path, tmp_path: Path) -> None:
    content = (trace_data / "gpu_multiworker_2020.xplane.pb").read_bytes()
    again = exported(store(content, tmp_path / "stored")).SerializeToString()
    original = rows(shown(content, tmp_path / "original", "trace_viewer")["trace_viewer"])
    ours = rows(shown(again, tmp_path / "ours", "trace_viewer")["trace_viewer"])
    assert ours.keys() == original.keys()
    assert [place for place in ours if ours[place] != original[place]] == []


def test_a_torch_trace_has_kernels_and_steps(trace_data: Path, tmp_path: Path) -> None:
    import_trace(trace_data / "ddp_rank0.json.gz", tmp_path / "stored")
    reader = TraceReader(tmp_path / "stored")
    found = shown(exported(reader).SerializeToString(), tmp_path / "ours", "trace_viewer", "kernel_stats")
    lines = rows(found["trace_viewer"])
    kernels = sum(len(events) for (_, name), events in lines.items() if name.startswith("Stream #"))
    assert kernels == reader.meta.gpu_events
    assert lines["/device:GPU:0", "Steps"]
    assert "nccl" in found["kernel_stats"]

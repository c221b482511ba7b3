"""XProf itself (the PyPI package xprof), as an oracle: what its tools show of a file.

`make .bench/xprof/.installed` makes an environment for it; PROFD_XPROF_PYTHON names the Python of another one.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("PROFD_XPROF_PYTHON", ROOT / ".bench" / "xprof" / "bin" / "python"))
needs_xprof = pytest.mark.skipif(not PYTHON.exists(), reason=f"no xprof at {PYTHON}: make .bench/xprof/.installed")
SECONDS = 300.0
SHOW = """
import json, sys
from xprof.convert import raw_to_tool_data
shown = []
tools = sys.argv[1].split(",")
for path in sys.argv[2:]:
    found = {}
    for tool in tools:
        options = {"use_saved_result": False, "trace_viewer_options": {}}
        data, _ = raw_to_tool_data.xspace_to_tool_data([path], tool, options)
        found[tool] = data.decode() if isinstance(data, bytes) else data
    shown.append(found)
print("SHOWN " + json.dumps(shown))
"""
Row = tuple[int, int, str, str]  # start and duration in ps, name, long name
Rows = dict[tuple[str, str], list[Row]]  # (process, thread) -> its events, by start


def shown(contents: list[bytes], folder: Path, *tools: str) -> list[dict[str, str]]:
    """What each tool says of each XSpace, as text."""
    paths = []
    for number, content in enumerate(contents):
        place = folder / str(number)
        place.mkdir(parents=True)
        paths.append(place / "host.xplane.pb")
        paths[-1].write_bytes(content)
    command: list[Any] = [PYTHON, "-c", SHOW, ",".join(tools), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    (answer,) = [line for line in done.stdout.splitlines() if line.startswith("SHOWN ")]
    found: list[dict[str, str]] = json.loads(answer.removeprefix("SHOWN "))
    return found


def rows(viewer: str) -> Rows:
    """The events of a trace viewer's answer."""
    events = json.loads(viewer)["traceEvents"]
    names: dict[Any, str] = {}
    for event in events:
        if event.get("name") in ("process_name", "thread_name"):
            key = (event["pid"], event["tid"]) if event["name"] == "thread_name" else event["pid"]
            names[key] = event["args"]["name"]
    found: Rows = {}
    for event in events:
        if event.get("ph") == "X":
            place = (names[event["pid"]], names.get((event["pid"], event["tid"]), ""))
            found.setdefault(place, []).append(_row(event))
    return {place: sorted(own) for place, own in found.items()}


def _row(event: dict[str, Any]) -> Row:
    long_name = str(event.get("args", {}).get("long_name", ""))
    return round(event["ts"] * 1e6), round(event["dur"] * 1e6), event["name"], long_name

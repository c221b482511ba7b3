"""The stored tree of a real capture is the one that torch itself builds from it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from profd.importing.pipeline import store_trace
from profd.segments.reader import TraceReader

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def stored_parents(trace, staging):
    """(name, start) of each row -> its possible parents, as (name, start, end) or None."""
    staging.mkdir()
    fd = os.open(trace, os.O_RDONLY)
    try:
        files = [{"format": "chrome", "label": "capture", "fd": 0}]
        store_trace({"files": files, "staging": str(staging), "meta": {}}, [fd], lambda what, share: None)
    finally:
        os.close(fd)
    reader = TraceReader(staging)
    table = reader.read(("name", "start", "end", "parent"), args=False)
    names = reader.dictionaries["name"].values
    columns = (table.column(name).tolist() for name in ("name", "start", "end"))
    rows = [(names[code], start, end) for code, start, end in zip(*columns, strict=True)]
    parents = defaultdict(list)
    for row, parent in zip(rows, table.column("parent").tolist(), strict=True):
        parents[row[:2]].append(rows[parent] if parent >= 0 else None)
    return parents


def test_tree_equals_torchs_own(tmp_path):
    trace, tree = tmp_path / "trace.json", tmp_path / "tree.json"
    script = Path(__file__).with_name("torch_tree.py")
    subprocess.run([sys.executable, script, trace, tree], check=True, timeout=180, capture_output=True)
    parents = stored_parents(trace, tmp_path / "staging")

    rows = json.loads(tree.read_text())
    assert len(rows) > 500
    missing, differing = 0, []
    for name, start, parent, parent_start, parent_end in rows:
        ours = parents[name, start]
        missing += not ours
        if ours and (parent, parent_start) not in [found[:2] if found else (None, None) for found in ours]:
            edges = {time for found in ours if found for time in found[1:]}
            differing.append((start, {parent_start, parent_end} | edges))
    # Only where two things happen in the same nanosecond may we say something else (tree/build.py tells what).
    assert all(start in edges for start, edges in differing)
    assert len(differing) < len(rows) / 100
    assert missing < len(rows) / 100  # Kineto leaves out what began before its window

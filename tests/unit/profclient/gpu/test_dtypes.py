"""What we know of CUPTI's records, against cupti-python's own dtypes (needs no driver).

It runs in the interpreter that PROFD_CUPTI_PYTHON names, or in this one: `pip install cupti-python` (its licence is
NVIDIA's, so no test environment of ours brings it).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
DTYPES = {
    "kernel": (
        "activity_kernel9_dtype",
        "activity_kernel10_dtype",
        "activity_kernel11_dtype",
        "activity_kernel13_dtype",
    ),
    "copy": ("activity_memcpy5_dtype", "activity_memcpy6_dtype", "activity_memcpy7_dtype"),
    "peer_copy": ("activity_memcpy_pto_p4_dtype",),
    "set": ("activity_memset4_dtype", "activity_memset5_dtype"),
    "call": ("activity_api_dtype",),
    "sync": ("activity_synchronization_dtype", "activity_synchronization2_dtype"),
    "graph": ("activity_graph_trace2_dtype",),
    "overhead": ("activity_overhead3_dtype",),
    "external": ("activity_external_correlation_dtype",),
}
FIELDS = {
    "kRegisters": "registers_per_thread", "kStart": "start", "kEnd": "end", "kDevice": "device_id",
    "kContext": "context_id", "kStream": "stream_id", "kGrid": "grid_x", "kBlock": "block_x",
    "kStaticShared": "static_shared_memory", "kDynamicShared": "dynamic_shared_memory",
    "kCorrelation": "correlation_id", "kName": "name", "kGraphNode": "graph_node_id", "kGraph": "graph_id",
    "kBytes": "bytes", "kThread": "thread_id", "kReturned": "return_value", "kType": "type", "kId": "cbid",
    "kKind": "copy_kind",
}  # fmt: skip
OTHERWISE = {
    ("overhead", "kKind"): "overhead_kind",
    ("external", "kKind"): "external_kind",
    ("external", "kId"): "external_id",
}
NOT_A_FIELD = {("overhead", "kThread")}  # within a union
PROGRAM = """
import json, sys
from cupti import cupti
import numpy
print(json.dumps({name: {key: value[1] for key, value in numpy.dtype(getattr(cupti, name)).fields.items()}
                  for name in json.loads(sys.argv[1]) if hasattr(cupti, name)}))
"""


def ours() -> dict[str, dict[str, int]]:
    """Offsets by record, as native/gpu/cupti_abi.h has them."""
    text = (ROOT / "native" / "gpu" / "cupti_abi.h").read_text()
    found = {}
    for name, base, body in re.findall(r"struct (\w+)(?: : (\w+))? \{[^\n]*\n((?:  [^\n]*\n)+?)\};", text):
        offsets = dict(re.findall(r"(k\w+) = (\d+)", body))
        if offsets:
            found[name] = {**found.get(base, {}), **{key: int(value) for key, value in offsets.items()}}
    return found


def test_offsets_are_those_of_the_dtypes() -> None:
    python = os.environ.get("PROFD_CUPTI_PYTHON", sys.executable)
    names = json.dumps([name for all_of in DTYPES.values() for name in all_of])
    done = subprocess.run([python, "-c", PROGRAM, names], capture_output=True, text=True, cwd="/")
    if done.returncode and "No module named 'cupti'" in done.stderr:
        pytest.skip("no cupti-python: set PROFD_CUPTI_PYTHON to an interpreter that has it")
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)
    assert {name for names in DTYPES.values() for name in names} - theirs.keys() == set()
    checked = 0
    for record, offsets in ours().items():
        for dtype in DTYPES[record]:
            for key, offset in offsets.items():
                if (record, key) in NOT_A_FIELD:
                    continue
                field = OTHERWISE.get((record, key), FIELDS[key])
                assert theirs[dtype][field] == offset, f"{dtype}.{field}"
                checked += 1
    assert checked > 100

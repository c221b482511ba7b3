"""`emit_nvtx` of PyTorch's operators, told to a tool of our own (tests/support/nvtx_tool.c)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from profclient.agent import NVTX_VARIABLE

pytestmark = pytest.mark.slow

TOOL = Path(__file__).parents[2] / "support" / "nvtx_tool.c"

OPS = """
import torch, profclient
x, w = torch.randn(2, 3), torch.randn(3, 4, requires_grad=True)
with profclient.emit_nvtx(record_shapes=True) as emit:
    with profclient.record_function("step"):
        (x @ w).relu().sum().backward()
assert not emit.missing, emit.missing
x @ w
"""


def test_operators_with_their_sequence_numbers(torch_builds: Path, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the tool")
    library, log = tmp_path / "libtool.so", tmp_path / "log"
    subprocess.run([compiler, "-shared", "-fPIC", "-pthread", "-o", library, TOOL], check=True)
    environ = {**os.environ, NVTX_VARIABLE: str(library), "NVTX_TOOL_LOG": str(log)}
    done = subprocess.run([sys.executable, "-c", OPS], env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    threads: dict[str, list[str]] = defaultdict(list)
    for line in log.read_text().splitlines():
        tid, what, *name = line.split(" ", 2)
        threads[tid].append(name[0] if what == "push" else "<")
    names = [name for said in threads.values() for name in said if name != "<"]
    assert "step" in names
    ops = (re.match(r"aten::(mm|relu|sum), seq = (\d+),", name) for name in names)
    forward = {match[1]: match[2] for match in ops if match}
    functions = (re.match(r"(\w+?)Backward0, stashed seq = (\d+)", name) for name in names)
    backward = {match[1].lower(): match[2] for match in functions if match}
    assert set(forward) == {"mm", "relu", "sum"}
    assert {op: backward[op] for op in forward} == forward
    assert any(name.startswith("aten::mm, ") and name.endswith("sizes = [[2, 3], [3, 4]]") for name in names)
    for said in threads.values():  # every thread's ranges nest, and all of them end
        depth = 0
        for word in said:
            depth += -1 if word == "<" else 1
            assert depth >= 0
        assert depth == 0

"""`emit_nvtx` against a tool of our own (tests/support/nvtx_tool.c): what it hears, and that it nests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from profclient.agent import NVTX, NVTX_VARIABLE

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the tool")
    library = tmp_path_factory.mktemp("tool") / "libtool.so"
    source = ROOT / "tests" / "support" / "nvtx_tool.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-pthread", "-o", library, source], check=True)
    return library


def told(tool: Path, tmp_path: Path, program: str, **variables: str) -> dict[int, list[str]]:
    """What each thread has told, in its order: a name, or `<` for the end of the last that is open."""
    log = tmp_path / "log"
    environ = {**os.environ, NVTX_VARIABLE: str(tool), "NVTX_TOOL_LOG": str(log), **variables}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    threads: dict[int, list[str]] = defaultdict(list)
    for line in log.read_text().splitlines():
        tid, what, *name = line.split(" ", 2)
        threads[int(tid)].append(name[0] if what == "push" else "<")
    return threads


def test_ranges_in_every_form(tool: Path, tmp_path: Path) -> None:
    program = """
import profclient
@profclient.record_function("function")
def function(): pass
before = profclient.record_function("made before")
with profclient.record_function("open before"):
    with profclient.emit_nvtx():
        with profclient.record_function("with", epoch=3):
            function()
        profclient.range_push("pushed")
        profclient.range_pop()
        profclient.range_pop()
        with before: pass
        again = profclient.record_function("again")
        with again:
            with again: pass
with profclient.record_function("after"): function()
with again: pass
"""
    [said] = told(tool, tmp_path, program).values()
    assert " ".join(said) == "with function < < pushed < again again < <"


def test_what_is_open_at_the_end_is_ended(tool: Path, tmp_path: Path) -> None:
    program = """
import profclient
emit = profclient.emit_nvtx()
emit.__enter__()
outer, inner = profclient.record_function("outer"), profclient.record_function("inner")
outer.__enter__()
inner.__enter__()
emit.__exit__(None, None, None)
outer.__exit__(None, None, None)  # before the one within it
inner.__exit__(None, None, None)
with profclient.emit_nvtx():
    with profclient.record_function("next"): pass
"""
    [said] = told(tool, tmp_path, program).values()
    assert " ".join(said) == "outer inner < < next <"


def test_threads_and_a_recording_beside_it(tool: Path, tmp_path: Path) -> None:
    program = """
import threading, profclient
from profclient import _recorder
from tests.support.arena_reader import read_arena
def work():
    for i in range(50):
        with profclient.record_function(f"r{i}"): pass
fd = _recorder.arm(arena_bytes=1 << 22)
with profclient.emit_nvtx():
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
_recorder.disarm()
assert len(read_arena(fd).events) == 150
"""
    threads = told(tool, tmp_path, program, PYTHONPATH=str(ROOT))
    assert len(threads) == 3
    assert all(said == [word for i in range(50) for word in (f"r{i}", "<")] for said in threads.values())


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({NVTX_VARIABLE: ""}, "names no tool"),
        ({NVTX_VARIABLE: "/no/such.so"}, "cannot be loaded"),
        ({NVTX_VARIABLE: NVTX}, "is profd, which records these ranges anyway"),
        ({"NVTX_TOOL_REFUSES": "1"}, "does not want to know"),
    ],
)
def test_without_a_tool(tool: Path, tmp_path: Path, variables: dict[str, str], why: str) -> None:
    program = """
import profclient
from profclient.errors import UsageError
for _ in range(2):
    try:
        with profclient.emit_nvtx(): pass
    except UsageError as error: print(error)
with profclient.emit_nvtx(enabled=False): pass
"""
    environ = {**os.environ, NVTX_VARIABLE: str(tool), "NVTX_TOOL_LOG": str(tmp_path / "log"), **variables}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert why in first
    assert first == second


def test_what_began_ends_when_the_rest_cannot_begin(tool: Path, tmp_path: Path) -> None:
    program = """
import profclient
from profclient import emitting
ended, mirror = [], emitting._recorder.mirror
def interrupted(push, pop):
    mirror(push, pop)
    if push: raise KeyboardInterrupt
emitting._recorder.mirror = interrupted
block = profclient.emit_nvtx()
block._start_ops = lambda push, pop: lambda: ended.append(1)
try:
    with block: raise AssertionError
except KeyboardInterrupt: pass
assert ended == [1]
with profclient.record_function("not told"): pass
emitting._recorder.mirror = mirror
with profclient.emit_nvtx(), profclient.record_function("told"): pass
"""
    [said] = told(tool, tmp_path, program).values()
    assert said == ["told", "<"]


def test_one_at_a_time(tool: Path, tmp_path: Path) -> None:
    program = """
import profclient
from profclient.errors import UsageError
with profclient.emit_nvtx():
    try:
        with profclient.emit_nvtx(): raise AssertionError
    except UsageError: pass
    with profclient.record_function("still"): pass
"""
    [said] = told(tool, tmp_path, program).values()
    assert said == ["still", "<"]

"""NVTX ranges of a real program: the PyPI package `nvtx`, which needs no GPU, and a C program of our own."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from profclient.agent import NVTX, NVTX_VARIABLE

pytest.importorskip("nvtx", reason="the package nvtx is not installed")

ROOT = Path(__file__).parents[4]

# Runs `before`, and `work` while ranges are recorded; prints what the arena holds.
PROGRAM = """
import json, os, sys, threading
from profclient import _recorder, nvtx as tool
from tests.support.arena_reader import read_arena
import nvtx

told = {}
exec(sys.argv[1])
fd = _recorder.arm(arena_bytes=16 << 20, sources=1)
tool.start()
exec(sys.argv[2])
tool.stop()
_recorder.disarm()
arena = read_arena(fd)
told["events"] = [
    {"kind": event.kind.name, "name": event.name, "start": event.start, "end": event.end, "flags": event.flags,
     "arguments": json.loads(event.ext[2]) if 2 in event.ext else {}, "thread": event.tid}
    for event in arena.events
]
told["lost"] = arena.lost
told["copies"] = tool.copies()
print(json.dumps(told))
"""


def ran(work: str, before: str = "", library: str = NVTX) -> dict[str, Any]:
    environ = {**os.environ, NVTX_VARIABLE: library, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, before, work], env=environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def names(told: dict[str, Any]) -> list[str]:
    return [event["name"] for event in told["events"]]


def test_pushed_ranges_nest_on_their_thread() -> None:
    told = ran(
        """
with nvtx.annotate("outer"):
    with nvtx.annotate("inner", payload=7, category="io"):
        pass
nvtx.push_range("pushed")
nvtx.pop_range()
"""
    )
    outer, inner, pushed = told["events"]
    assert names(told) == ["outer", "inner", "pushed"]
    assert {event["kind"] for event in told["events"]} == {"RANGE"}
    assert outer["start"] < inner["start"] < inner["end"] < outer["end"] < pushed["start"] < pushed["end"]
    assert inner["arguments"]["payload"] == 7
    assert inner["arguments"]["category"] > 0
    assert told["copies"] == 1
    assert not any(told["lost"].values()) if isinstance(told["lost"], dict) else not any(told["lost"])


def test_domains_of_before_are_known_and_have_stacks_of_their_own() -> None:
    told = ran(
        """
mine.push_range(first)
yours.push_range(second)
mine.pop_range()
yours.pop_range()
""",
        """
mine, yours = nvtx.get_domain("mine"), nvtx.get_domain("yours")
first = mine.get_event_attributes("ürgh \\U0001f642")
second = yours.get_event_attributes("second")
""",
    )
    first, second = told["events"]
    assert (first["name"], first["arguments"]) == ("ürgh \U0001f642", {"domain": "mine"})
    assert (second["name"], second["arguments"]) == ("second", {"domain": "yours"})
    assert first["start"] < second["start"] < first["end"] < second["end"]


def test_started_ranges_end_on_another_thread() -> None:
    told = ran(
        """
one, two = nvtx.start_range("one"), nvtx.start_range("two")
thread = threading.Thread(target=nvtx.end_range, args=(one,))
thread.start()
thread.join()
nvtx.end_range(one)  # again: nothing
"""
    )
    one, two = told["events"]
    assert (one["name"], two["name"]) == ("one", "two")
    assert one["end"] > two["start"]
    assert two["end"] == 0  # open
    assert one["flags"] & 1  # async: it nests in nothing


def test_marks() -> None:
    [mark] = ran('nvtx.mark("here")')["events"]
    assert (mark["name"], mark["kind"]) == ("here", "INSTANT")


def test_nothing_is_recorded_of_before_and_after() -> None:
    told = ran(
        """
nvtx.pop_range()
nvtx.push_range("inside")
tool.stop()
nvtx.pop_range()
nvtx.push_range("between")
tool.start()
nvtx.pop_range()
""",
        'nvtx.push_range("open when recording began")',
    )
    # What is pushed while nobody looks is not known; a pop that follows closes what was seen last.
    assert names(told) == ["inside"]


def test_a_second_recording_starts_with_an_empty_stack() -> None:
    told = ran(
        """
nvtx.pop_range()
nvtx.push_range("new")
""",
        """
_recorder.arm(arena_bytes=16 << 20, sources=1)
tool.start()
nvtx.push_range("of the first")
tool.stop()
_recorder.disarm()
_recorder.release()
""",
    )
    [new] = told["events"]
    assert (new["name"], new["end"]) == ("new", 0)


def test_pops_find_their_own_when_more_is_pushed_than_is_remembered() -> None:
    told = ran(
        """
for number in range(16_384 + 3):
    nvtx.push_range(f"{number % 100}")
for _ in range(3):
    nvtx.pop_range()  # of what has no end
nvtx.pop_range()
nvtx.push_range("last")
nvtx.pop_range()
"""
    )
    events = told["events"]
    assert len(events) == 16_384 + 3 + 1
    assert [number for number, event in enumerate(events) if event["end"]] == [16_383, 16_384 + 3]


@pytest.mark.parametrize(("payload", "shown"), [(0.1, 0.1), (-1e300, -1e300), (float("inf"), None), (-7, -7)])
def test_payloads(payload: float, shown: float | None) -> None:
    [mark] = ran(f"nvtx.mark('m', payload=float('{payload}') if {isinstance(payload, float)} else {payload})")["events"]
    assert mark["arguments"].get("payload") == shown


def test_many_threads_and_texts() -> None:
    told = ran(
        """
def work(number):
    for i in range(200):
        with nvtx.annotate(f"{number} {i}"):
            pass
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    )
    assert sorted(names(told)) == sorted(f"{number} {i}" for number in range(4) for i in range(200))
    assert all(event["end"] > event["start"] for event in told["events"])


def test_a_child_of_a_fork_turns_it_off() -> None:
    told = ran(
        """
pid = os.fork()
if pid == 0:
    own = _recorder.arm(arena_bytes=16 << 20, sources=1)  # and nobody has turned ranges on
    with nvtx.annotate("in the child"):
        pass
    os._exit(len(read_arena(own).events))
assert os.waitpid(pid, 0)[1] == 0
with nvtx.annotate("in the parent"):
    pass
"""
    )
    assert names(told) == ["in the parent"]


# What a program in C says. Its first argument is a folder with nvtx3/nvToolsExt.h.
C_PROGRAM = r"""
#include <nvtx3/nvToolsExt.h>
#include <stddef.h>
void work(void) {
  nvtxRangePushA("plain");
  nvtxRangePushW(L"wide \u00fc");
  nvtxRangePop();
  nvtxRangePop();
  nvtxEventAttributes_t with = {0};
  with.version = NVTX_VERSION;
  with.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  with.messageType = NVTX_MESSAGE_TYPE_ASCII;
  with.message.ascii = "with \"all\"";
  with.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
  with.payload.dValue = 1.5;
  with.category = 3;
  nvtxDomainHandle_t domain = nvtxDomainCreateA("c\n");
  nvtxDomainRangePushEx(domain, &with);
  nvtxDomainRangePop(domain);
  with.messageType = NVTX_MESSAGE_UNKNOWN;
  nvtxMarkEx(&with);
  nvtxMarkEx(NULL);
  nvtxRangePushA(NULL);
}
int depth(void) { return nvtxRangePushA("depth"); }
"""


def test_a_program_in_c_with_nvidias_own_headers(tmp_path: Path) -> None:
    compiler, headers = shutil.which("cc"), os.environ.get("PROFD_NVTX_INCLUDE", "/usr/local/cuda/include")
    if compiler is None or not Path(headers, "nvtx3", "nvToolsExt.h").exists():
        pytest.skip("no nvtx3/nvToolsExt.h: name a folder that has it in PROFD_NVTX_INCLUDE")
    (tmp_path / "program.c").write_text(C_PROGRAM)
    library = tmp_path / "program.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-I", headers, "-o", library, tmp_path / "program.c", "-ldl"], check=True
    )
    told = ran(
        "program.work(); told['depth'] = [program.depth(), program.depth()]",
        f"import ctypes; program = ctypes.CDLL({str(library)!r}); told['idle'] = program.depth()",
    )
    found = [(event["name"], event["arguments"]) for event in told["events"]]
    nameless = "(NVTX range without a name)"
    assert found == [
        ("plain", {}),
        ("wide ü", {}),
        ('with "all"', {"domain": "c\n", "category": 3, "payload": 1.5}),
        (nameless, {"category": 3, "payload": 1.5}),
        (nameless, {}),
        (nameless, {}),
        ("depth", {}),
        ("depth", {}),
    ]
    assert told["depth"] == [1, 2]  # below the one without a name
    assert told["idle"] == -2  # no tool: our function was not called


def test_tables_that_are_not_understood_are_left_alone() -> None:
    library = ctypes.CDLL(NVTX)
    export = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint)
    assert library.InitializeInjectionNvtx2(export(lambda which: None)) == 0
    short = (ctypes.c_size_t * 2)(8, 0)
    assert library.InitializeInjectionNvtx2(export(lambda which: ctypes.addressof(short))) == 0
    assert library.InitializeInjectionNvtx2(None) == 0

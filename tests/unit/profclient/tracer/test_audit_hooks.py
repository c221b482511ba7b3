"""Audit hooks of the program: they may raise, wait, or end what they are asked about. Each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

MONITORED = sys.version_info >= (3, 12)
monitored = pytest.mark.skipif(not MONITORED, reason="this Python has no sys.monitoring")
profiled = pytest.mark.skipif(MONITORED, reason="this Python is traced through sys.monitoring")

EVENT = "sys.monitoring.register_callback" if MONITORED else "sys.setprofile"
START = f"""
import ctypes, gc, sys, threading, time
from profclient import _recorder
from profclient.agent import NotHonoured
from profclient.tracer import Tracer
from tests.support.tracing import name_of, tracing
EVENT = {EVENT!r}
asked = []
wanted = []  # what the hook does now
def hook(event, arguments):
    if event == EVENT:
        asked.append(event)
        for work in wanted: work()
def forbid():
    raise kind("forbidden")
kind = RuntimeError
sys.addaudithook(hook)
def leaf(): pass
def nobody_is_called():
    if sys.version_info < (3, 12): return sys.getprofile() is None and _recorder.tracer_profilers() == []
    return [sys.monitoring.get_tool(number) for number in (3, 4)] == [None, None]
def run_threads(count):
    ran, tids = [], []
    def target(): leaf(); ran.append(1); tids.append(threading.get_native_id())
    for _ in range(count):
        thread = threading.Thread(target=target)
        thread.start(); thread.join()
    return len(ran), tids
"""


def said_by(script: str) -> str:
    """What it prints; it has nothing to complain of, no thread of it fails, and no signal ends it."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", START + script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("kind", ["RuntimeError", "SystemExit"])
def test_a_hook_that_forbids_it(kind: str) -> None:
    """It is said, nothing of us is left, threads start as they would, and a later capture may be allowed."""
    script = f"""
kind = {kind}
wanted.append(forbid)
try:
    with tracing(): pass
except NotHonoured as error: print(error)
wanted.clear()
print(nobody_is_called(), threading.getprofile(), run_threads(3)[0])
with tracing() as recording: leaf()
print([event.name for event in recording.calls()].count(name_of(leaf.__code__)), recording.changed, nobody_is_called())
"""
    what = "sys.monitoring" if MONITORED else "sys.setprofile"
    expected = [f"an audit hook of the program forbids {what}", "True None 3", "1  True", ""]
    assert said_by(script).split("\n") == expected


def test_a_hook_that_forbids_it_from_then_on() -> None:
    """Threads of the program start, are recorded, and the tracer is gone when it was stopped."""
    script = """
stop = threading.Event()
waiting = threading.Thread(target=stop.wait)
waiting.start()
with tracing() as recording:
    wanted.append(forbid)
    ran, tids = run_threads(5)
leaves = [event for event in recording.arena.events if event.tid in tids and event.name == name_of(leaf.__code__)]
wanted.clear()
stop.set(); waiting.join()
print(ran, len(leaves), nobody_is_called())
print(recording.changed)
"""
    changed = "callbacks of sys.monitoring stay, idle: an audit hook of the program forbids it" if MONITORED else ""
    assert said_by(script).split("\n") == ["5 5 True", changed, ""]


@profiled
def test_the_hook_is_asked_once_for_all_threads() -> None:
    script = """
stop = threading.Event()
threads = [threading.Thread(target=stop.wait) for _ in range(5)]
for thread in threads: thread.start()
with tracing(): run_threads(5)
stop.set()
print(len(asked))
"""
    assert said_by(script) == "1\n"


def test_a_hook_that_ends_the_recording() -> None:
    """It is asked, and what it was asked for is over when it answers."""
    script = """
_recorder.arm(sources=2)
tracer = Tracer()
wanted.append(_recorder.disarm)
tracer.start()
wanted.clear()
while not _recorder.release(): pass
leaf()
print(run_threads(3)[0], repr(tracer.stop()), nobody_is_called())
"""
    assert said_by(script) == "3 '' True\n"


def test_a_hook_that_lets_others_run_while_threads_come_and_go() -> None:
    """No walk over threads meets one that has gone, and each of them runs what it was started for."""
    script = """
wanted.append(lambda: time.sleep(0.0005))
stop = threading.Event()
ran, started = [], []
def short():
    for _ in range(50): len("x")
    ran.append(1)
def many():
    while not stop.is_set():
        threads = [threading.Thread(target=short) for _ in range(20)]
        started.append(len(threads))
        for thread in threads: thread.start()
        for thread in threads: thread.join()
spawners = [threading.Thread(target=many) for _ in range(4)]
for thread in spawners: thread.start()
_recorder.arm(arena_bytes=2 << 20, sources=2)
for _ in range(40):
    tracer = Tracer()
    tracer.start()
    before = len(started)
    while len(started) < before + 4: time.sleep(0)
    assert tracer.stop() == ""
_recorder.disarm()
stop.set()
for thread in spawners: thread.join()
print(len(ran) == sum(started), nobody_is_called())
"""
    assert said_by(script) == "True True\n"


@profiled
def test_a_list_of_threads_that_somebody_holds() -> None:
    """sys._current_frames() makes objects while it holds the list: code of the program may run, traced, meanwhile."""
    script = """
held = ctypes.c_void_p.from_address(ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime")) + 32)
acquire, release = ctypes.pythonapi.PyThread_acquire_lock, ctypes.pythonapi.PyThread_release_lock
acquire.argtypes, release.argtypes = [ctypes.c_void_p, ctypes.c_int], [ctypes.c_void_p]
_recorder.arm(sources=2)
tracer = Tracer()
assert acquire(held, 0)
try: tracer.start()
except RuntimeError as error: print(error)
release(held)
tracer.start()
assert acquire(held, 0)
for _ in range(5000): leaf()  # threads are looked for, in vain
changed = tracer.stop()
release(held)
leaf()
print(repr(changed), nobody_is_called())
"""
    assert said_by(script) == "the interpreter's list of threads is held by somebody\n'' True\n"

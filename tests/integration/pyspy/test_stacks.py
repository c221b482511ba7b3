"""profd's own reader of stacks, held against py-spy, and against programs that change or lie while they are read."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from profd.sources.pyspy import tool

from tests.support.in_proc import children, said_of
from tests.support.python_jobs import needs_ptrace
from tests.support.stack_reader import Frame, Stacks, interpreters, program, read, read_by_pyspy
from tests.support.waiting import comes, eventually

pytestmark = needs_ptrace

# Every thread waits: in each kind of function, of name and of string that Python has.
WAITING = r"""
import asyncio, contextlib, functools, sys, threading, time

never = threading.Event()
inside = []

def hold():
    inside.append(None)
    never.wait()

class Base:
    def method(self):
        def inner(): (lambda: hold())()
        inner()
    @classmethod
    def of_class(cls): cls().method()
    @staticmethod
    def static(): Derived.of_class()
    class Nested:
        def nested(me): Base.static()
    def __call__(self, x): Base.Nested().nested()
    @property
    def value(self): Base()(1)
    def __getitem__(self, key): return self.value
    def __init__(self, held=False): held and self[1]

class Derived(Base): pass

def comprehended(): return [Base(True) for x in [1]]
def generated(): return sum(1 if comprehended() else 0 for _ in [1])
def key(x): generated()
def sorts(): sorted([1, 2], key=key)
def yields(): yield sorts()
def delegates(): yield from yields()

class Meta(type):
    def __new__(meta, name, bases, names):
        list(delegates())
        return super().__new__(meta, name, bases, names)

def makes():
    class Body(metaclass=Meta):
        x = 1

@contextlib.contextmanager
def context():
    makes()
    yield

def decorated():
    with context(): pass

async def awaits(): functools.partial(decorated)()
async def awaits_more(): await awaits()
async def task(): await asyncio.gather(awaits_more())

def kännte(): asyncio.run(task())
def 名前(): kännte()
def a_function_whose_name_is_longer_than_what_is_read_of_a_string_at_first_sight(): 名前()
def recurses(n):
    if n: recurses(n - 1)
    else: a_function_whose_name_is_longer_than_what_is_read_of_a_string_at_first_sight()
def executes():
    exec(compile("def 𐐀(): recurses(300)\n\n\n𐐀()", "<ü\"\\\n\x01>", "exec"), globals())

names = ["plain", "ümlaut", "名前", "𐐀", "a\"b\\c\n"]
for name in names: threading.Thread(target=executes, name=name, daemon=True).start()
for _ in range(57): threading.Thread(target=hold, daemon=True).start()

while len(inside) < 62: time.sleep(0.001)
print("ready", flush=True)
executes()
"""

# Calls that have been made so often that the interpreter makes them in a way of its own.
OFTEN = """
import threading
waits = False
def hold():
    if waits: threading.Event().wait()
class Often:
    def __init__(self, x): self.go(x)
    def go(self, x): return self.value
    @property
    def value(self): return self[1]
    def __getitem__(self, key): return self.more(key)
    def more(self, key): return [each for each in self.yields(key)]
    def yields(self, key): yield (yield from self.holds(key))
    def holds(self, key):
        hold()
        yield key
def makes(): return Often(1)
for number in range(3000): makes()
waits = True
print("ready", flush=True)
makes()
"""

# A thread in two interpreters: py-spy shows the second one's part.
INNER = """
try: import _xxsubinterpreters as interpreters
except ImportError: import _interpreters as interpreters
def outer():
    run = getattr(interpreters, "run_string", None) or interpreters.exec
    run(interpreters.create(), "import time\\ndef inner(): time.sleep(600)\\ninner()")
print("ready", flush=True)
outer()
"""

# Strings that py-spy takes for none: it has no thread's name where one is so long, and leaves such functions out. And a
# thread whose attributes are a dictionary.
STRANGE = r"""
import threading
names = {}
exec(compile("def odd(hold): hold()", "half \ud800 a character", "exec"), names)
odd = names["odd"]
odd.__code__ = odd.__code__.replace(co_qualname="x" * 5000 + "y")
threading.current_thread().name = "\udfff" + "n" * 5000
def hold():
    print("ready", flush=True)
    input()

class Own(threading.Thread):
    __slots__ = ("more",)
    def run(self): threading.Event().wait()

Own(name="own", daemon=True).start()
odd(hold)
"""

DEEP = """
import sys, threading
sys.setrecursionlimit(1_000_000)
def leaf():
    print("ready", flush=True)
    input()
def down(left):
    if left: down(left - 1)
    else: leaf()
down(100_000)
"""

# Functions that do nothing but call each other, as this says.
CALLS: dict[str, set[str]] = {
    "<module>": {"main"},
    "main": {"one", "sorts", "resumes"},
    "one": {"two", "three"},
    "two": {"leaf", "three", "four"},
    "three": {"four", "leaf"},
    "four": {"leaf"},
    "leaf": set(),
    "sorts": {"key"},
    "key": {"leaf"},
    "resumes": {"yields", "leaf"},
    "yields": {"leaf"},
}
CALLING = """
def leaf(): pass
def four(): leaf(); leaf()
def three(): four(); leaf()
def two(): leaf(); three(); four()
def one(): two(); three()
def key(x): leaf(); return x
def sorts(): sorted([1, 2, 3], key=key)
def yields():
    for number in range(3): leaf(); yield number
def resumes():
    for number in yields(): leaf()
def main():
    while True: one(); sorts(); resumes()
print("ready", flush=True)
main()
"""

# Every function is made anew: the next one takes the memory of the last.
ANEW = r"""
def loop():
    count = 0
    while True:
        count += 1
        names = {}
        text = f"def outer{count}(): inner{count}()\ndef inner{count}(): sum(range(300))"
        exec(compile(text, "made", "exec"), names)
        names[f"outer{count}"]()
print("ready", flush=True)
loop()
"""

# Writes garbage where the interpreter keeps the frames of threads that wait and never go on.
HOSTILE = """
import ctypes, random, sys, threading, time
def waits(): threading.Event().wait()
for _ in range(3): threading.Thread(target=waits, daemon=True).start()
def theirs(): return [frame for ident, frame in sys._current_frames().items() if ident != threading.get_ident()]
while [frame.f_code.co_qualname for frame in theirs()] != ["Condition.wait"] * 3: time.sleep(0.001)
frames = theirs()
# PyFrameObject: its _PyInterpreterFrame is the fourth word of it.
places = [ctypes.c_uint64.from_address(id(frame) + 24).value for frame in frames]
print("ready", flush=True)
chance = random.Random(1)
known = [*places, id(frames[0].f_code), id(frames[0].f_code.co_qualname), 0, 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 72]
while True:
    for place in places:
        for word in range(9):
            value = chance.choice([*known, chance.getrandbits(64), place + 8 * chance.randrange(-8, 8)])
            ctypes.c_uint64.from_address(place + 8 * word).value = value % (1 << 64)
"""

# Its main thread has 300 names, and each is to be looked for among 60,000 attributes: a sample takes many seconds.
LEADING_ABOUT = """
import threading
class Main:
    def __hash__(self): return threading.get_ident()
class Nameless: pass
thread = Nameless()
thread.__dict__ = {f"{number:05}": None for number in range(60000)}
threading._active.clear()
threading._active.update({Main(): thread for _ in range(300)})
print("ready", flush=True)
input()
"""

EXECUTING = "import os, sys\nprint('ready', flush=True)\nsys.stdin.read(1)\nos.execv('/bin/sleep', ['sleep', '600'])\n"
ASKING = "print('ready', flush=True)\ninput()\n"


def deepest(stacks: Stacks) -> dict[int, tuple[Frame, ...]]:
    """Of each thread."""
    return {thread: max(seen, key=len) for thread, seen in stacks.items()}


def counted(said: str) -> tuple[int, int]:
    """Samples and errors."""
    found = re.search(r"Samples: (\d+) Errors: (\d+)\n", said)
    assert found is not None, said
    return int(found[1]), int(found[2])


@pytest.mark.parametrize("interpreter", interpreters())
async def test_threads_that_wait_are_as_py_spy_sees_them(interpreter: str) -> None:
    with program(interpreter, WAITING) as job:
        own = await read(job.pid, 10, 1)
        peer = await read_by_pyspy(job.pid, 10, 1)
    assert own.status == 0, own.complaints
    stacks, errors = counted(own.said)
    assert errors == 0 < stacks, own.said
    assert stacks % 63 == 0, own.said  # ten samples of all threads; a busy host has fewer
    found, wanted = deepest(own.stacks), deepest(peer.stacks)
    assert len(found) == 63
    assert max(map(len, found.values())) > 320
    assert found == wanted


@pytest.mark.parametrize("interpreter", interpreters())
async def test_calls_that_are_made_often_are_as_py_spy_sees_them(interpreter: str) -> None:
    with program(interpreter, OFTEN) as job:
        own = await read(job.pid, 10, 1)
        peer = await read_by_pyspy(job.pid, 10, 1)
    found = deepest(own.stacks)
    assert found == deepest(peer.stacks)
    assert {name for name, _, _ in found.popitem()[1]} >= {"Often.__init__", "Often.value", "Often.yields", "hold"}


@pytest.mark.parametrize("interpreter", interpreters())
async def test_a_thread_has_the_frames_of_all_its_interpreters(interpreter: str) -> None:
    wanted = ["<module>", "outer", "<module>", "inner"]
    with program(interpreter, INNER) as job:  # which makes the second one when it is ready
        await often(job.pid, 20, 0, lambda seen: [name for name, _, _ in seen[-1][1:]] == wanted)


@pytest.mark.parametrize("interpreter", interpreters())
async def test_strings_are_cut_and_half_characters_are_question_marks(interpreter: str) -> None:
    with program(interpreter, STRANGE) as job:
        found = await read(job.pid, 10, 1)
    stack, other = sorted(deepest(found.stacks).values(), key=lambda stack: str(job.pid) not in stack[0][0])
    assert other[0][0].endswith("): own")
    assert stack[0][0] == f"thread ({job.pid}): ?" + "n" * 4095
    assert stack[2][:2] == ("x" * 4096, "half ? a character")


@pytest.mark.parametrize("interpreter", interpreters())
async def test_of_a_stack_deeper_than_any_limit_the_inner_end_is_seen(interpreter: str) -> None:
    with program(interpreter, DEEP) as job:
        found = await read(job.pid, 10, 1)
    samples, errors = counted(found.said)
    assert errors == 0 < samples, found.said
    (stack,) = deepest(found.stacks).values()
    names = [name for name, _, _ in stack]
    assert names[:2] == [
        f"thread ({job.pid}): MainThread",
        "(more than 16,000 calls deep: the outer ones are left out)",
    ]
    assert names[2:] == ["down"] * 15_999 + ["leaf"]


@pytest.mark.parametrize("interpreter", interpreters())
async def test_calls_are_not_mixed(interpreter: str) -> None:
    with program(interpreter, CALLING) as job:
        seen = await often(job.pid, 2000, 50, len)
    stacks = [[name for name, _, _ in stack[1:]] for stack in seen]
    wrong = [names for names in stacks if names[0] != "<module>" or not all(map(calls, names, names[1:]))]
    # Of a generator, and of what C calls, nothing but its own word says who did: 1 in 1,000 here (py-spy: 1 in 10).
    assert all({"yields", "key"} & {*names} for names in wrong), wrong
    assert len(wrong) <= len(seen) / 50, wrong
    assert len({names[-1] for names in stacks}) > 5


async def often(
    pid: int, hz: float, least: int, count: Callable[[list[tuple[Frame, ...]]], int]
) -> list[tuple[Frame, ...]]:
    """Stacks of its one thread until more than `least` count: on a busy host that takes several readings."""
    seen: list[tuple[Frame, ...]] = []

    async def enough() -> bool | None:
        (more,) = (await read(pid, hz, 3)).stacks.values()
        seen.extend(more)
        return count(seen) > least or None

    await comes(enough)
    return seen


def made(stack: tuple[Frame, ...]) -> list[str]:
    """Functions of ANEW that it made."""
    return [name for name, _, _ in stack if name.startswith(("outer", "inner"))]


def calls(outer: str, inner: str) -> bool:
    """CALLING says so."""
    return inner in CALLS[outer]


@pytest.mark.parametrize("interpreter", interpreters())
async def test_code_that_takes_the_place_of_other_code_has_its_own_name(interpreter: str) -> None:
    with program(interpreter, ANEW) as job:
        seen = await often(job.pid, 1000, 20, lambda seen: sum(map(bool, map(made, seen))))
    for names in map(made, seen):
        assert len({name[5:] for name in names}) <= 1, names


@pytest.mark.parametrize("interpreter", interpreters())
async def test_a_program_that_writes_garbage_over_its_frames_harms_nobody(interpreter: str) -> None:
    with program(interpreter, HOSTILE) as job:
        found = await read(job.pid, 500, 2)
    assert found.status == 0, found.complaints
    samples, errors = counted(found.said)
    assert samples > 0
    assert errors > 0
    assert found.stacks


async def test_it_can_be_ended_in_the_middle_of_a_sample() -> None:
    with program(sys.executable, LEADING_ABOUT) as job:

        async def looks_about() -> None:
            await eventually(lambda: any((tool.cpu_seconds(pid) or 0) > 0.1 for pid in samplers()))

        found = await read(job.pid, 100, 600, looks_about)
    assert found.status == 0, found.complaints
    assert counted(found.said) == (0, 0)


def samplers() -> list[int]:
    """Those that this process has started."""
    return [pid for pid in children(os.getpid()) if said_of(pid, "comm") == "profd-sampler\n"]


async def test_a_program_that_takes_the_place_of_another_has_no_stacks() -> None:
    with program(sys.executable, EXECUTING) as job:

        async def executes() -> None:
            assert job.stdin is not None
            job.stdin.write(b"x")
            job.stdin.flush()
            await eventually(lambda: "sleep" in Path(f"/proc/{job.pid}/cmdline").read_text())

        found = await read(job.pid, 200, 60, executes)
    assert found.status == 0, found.complaints
    counted(found.said)


async def test_it_ends_when_its_process_does() -> None:
    with program(sys.executable, ASKING) as job:

        async def ends() -> None:
            job.kill()

        found = await read(job.pid, 100, 60, ends, interrupted=False)
    assert found.status == 0
    assert "Stopped sampling" in found.said


@pytest.mark.parametrize("hz", [0.5, 2.5])
async def test_a_rate_need_not_be_whole(hz: float) -> None:
    """The last sample is due within the last period, and left out where a busy host is late with it."""

    async def whole() -> bool | None:
        samples, _ = counted((await read(job.pid, hz, 4)).said)
        assert samples <= 4 * hz
        return samples > 4 * math.floor(hz) or None

    with program(sys.executable, ASKING) as job:
        await comes(whole)


@pytest.mark.parametrize("command", ["sleep", *interpreters("3.9", "3.10")])
async def test_what_it_does_not_know_it_leaves_to_py_spy(command: str) -> None:
    job = subprocess.Popen([command, *(["600"] if command == "sleep" else ["-c", "input()"])], stdin=subprocess.PIPE)
    try:
        await eventually(lambda: not Path(os.readlink(f"/proc/{job.pid}/exe")).samefile(sys.executable))
        found = await read(job.pid, 10, 1)
    finally:
        job.kill()
        job.communicate()
    assert found.status == tool.UNKNOWN_STATUS
    assert found.complaints.startswith("Error: Failed to find an interpreter whose layout is known: ")
    assert found.written == b""

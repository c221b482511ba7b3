"""What the recorder leaves behind when its process is killed or forks, and that it never writes where it may not."""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.support.arena_reader import Ext, Kind, State, read_arena

PATIENCE_S = 60

WRITER = """
    import ctypes, mmap, os, socket, sys, threading
    from profclient import _recorder
    from profclient._recorder import counter, record_function

    sock = socket.socket(fileno=int(sys.argv[1]))
    claims = os.memfd_create("claims")
    os.ftruncate(claims, 4096)
    claimed = mmap.mmap(claims, 4096)
    fd = _recorder.arm(arena_bytes=24 << 20, strings_bytes=4 << 20)
    socket.send_fds(sock, [b"x"], [fd, claims])

    def write(thread):
        i = 0
        claim = ctypes.c_uint64.from_buffer(claimed, 8 * thread)  # one store; struct.pack_into clears the bytes first
        while True:
            with record_function(f"{thread}:{i}", number=i):
                counter(f"{thread}:{i}", i)
            i += 1
            claim.value = i

    threading.Thread(target=write, args=(1,), daemon=True).start()
    write(0)
"""


class Writer:
    """A process that writes numbered events on two threads as fast as it can, and claims each once it is written."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            script = textwrap.dedent(WRITER)
            self.process = subprocess.Popen(
                [sys.executable, "-c", script, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )
        with ours:
            ours.settimeout(PATIENCE_S)
            _, (self.arena, claims), _, _ = socket.recv_fds(ours, 1, 2)
        self._claims = mmap.mmap(claims, 4096)
        os.close(claims)

    def claimed(self, thread: int) -> int:
        return int(struct.unpack_from("<Q", self._claims, 8 * thread)[0])

    def wait_for(self, claims: int) -> None:
        end = time.monotonic() + PATIENCE_S
        while self.claimed(0) + self.claimed(1) < claims:
            assert time.monotonic() < end, "the writer does not write"
            assert self.process.poll() is None

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        os.close(self.arena)
        self._claims.close()


@pytest.mark.slow
def test_a_killed_process_leaves_everything_that_it_published() -> None:
    """GIVEN a process that writes WHEN it is killed at any moment THEN every event that it claimed is there, whole."""
    dice = random.Random(4)
    for _ in range(15):
        writer = Writer()
        try:
            writer.wait_for(dice.randrange(1, 30_000))
            writer.kill()
            arena = read_arena(writer.arena)
            assert arena.header["recording"] == 1
            assert sum(arena.lost.values()) == 0
            for thread in (0, 1):
                check(arena, thread, writer.claimed(thread))
        finally:
            writer.close()


def check(arena, thread: int, claimed: int) -> None:
    mine = [event for event in arena.events if event.name.startswith(f"{thread}:")]
    ranges = [event for event in mine if event.kind is Kind.RANGE]
    counters = [event for event in mine if event.kind is Kind.COUNTER]
    for i, event in enumerate(ranges):
        assert event.name == f"{thread}:{i}"
        assert json.loads(event.ext[Ext.ARGS]) == {"number": i}
        assert event.end >= event.start or i >= claimed
    assert [event.value for event in counters] == list(range(len(counters)))
    assert claimed <= len(counters) <= len(ranges) <= claimed + 1


FORK = """
    import json, os, sys
    from profclient import _recorder
    from profclient._recorder import instant, record_function
    from tests.support.arena_reader import read_arena

    fd = os.dup(_recorder.arm())
    mine = _recorder.incarnation()
    outer = record_function("outer")
    with outer, record_function("inner"):
        pid = os.fork()
        instant("in both" if pid == 0 else "in the parent")
    if pid == 0:
        assert _recorder.sources() == 0
        assert _recorder.arena_fd() == -1
        assert _recorder.incarnation() not in (0, mine)
        own = os.dup(_recorder.arm(epoch=9))
        with record_function("of the child"):
            pass
        outer.__exit__(None, None, None)
        _recorder.disarm()
        arena = read_arena(own)
        assert arena.names() == ["of the child"], arena.names()
        assert arena.header["pid"] == os.getpid()
        assert arena.header["epoch"] == 9
        assert _recorder.release()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    _recorder.disarm()
    arena = read_arena(fd)
    assert sorted(arena.names()) == ["in the parent", "inner", "outer"], arena.names()
    assert all(event.end for event in arena.events)
    assert _recorder.incarnation() == mine
    assert _recorder.release()
"""


def run(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_fork_in_the_middle_of_a_range() -> None:
    run(FORK)


def test_forks_while_other_threads_record() -> None:
    """The child has one thread; the queues of the others must not be waited for, nor written to."""
    run("""
        import os, threading
        from profclient import _recorder
        from profclient._recorder import record_function

        stop = threading.Event()
        def work():
            while not stop.is_set():
                with record_function("x"):
                    pass

        threads = [threading.Thread(target=work) for _ in range(3)]
        _recorder.arm()
        for thread in threads:
            thread.start()
        for i in range(20):
            pid = os.fork()
            if pid == 0:
                with record_function("idle"):
                    pass
                _recorder.arm()
                with record_function("mine"):
                    pass
                _recorder.disarm()
                ok = _recorder.totals()["recorded"] == 1 and _recorder.release()
                os._exit(0 if ok else 1)
            assert os.waitpid(pid, 0)[1] == 0
            if i % 5 == 4:
                _recorder.disarm()
                while not _recorder.release():
                    pass
                _recorder.arm()
        stop.set()
        for thread in threads:
            thread.join()
        """)


def test_a_child_made_without_fork_handlers_lets_go_at_its_next_chunk() -> None:
    """A raw clone runs no handler: what it writes until its chunk is full is all that can go astray."""
    run("""
        import ctypes, os
        from profclient import _recorder
        from profclient._recorder import instant
        from tests.support.arena_reader import SLOTS_PER_CHUNK

        SYS_clone, SIGCHLD = 56, 17
        if os.uname().machine != "x86_64":
            raise SystemExit
        _recorder.arm()
        instant("first")
        syscall = ctypes.CDLL(None).syscall
        pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            for _ in range(2 * SLOTS_PER_CHUNK):
                instant("astray")
            os._exit(0 if _recorder.sources() == 0 and _recorder.arena_fd() == -1 else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert _recorder.sources() == 1
        _recorder.disarm()
        """)


def test_a_stopped_writer_never_reaches_the_next_arena() -> None:
    """GIVEN threads stopped anywhere in a write WHEN the arena is let go of THEN none writes into what follows."""
    run("""
        import os, sys, threading
        from profclient import _recorder
        from profclient._recorder import record_function
        from tests.support.arena_reader import read_arena

        sys.setswitchinterval(1e-6)  # threads lose the GIL between any two bytecodes
        stop = threading.Event()
        def work():
            span = record_function("reused")
            while not stop.is_set():
                with span, record_function("fresh", i=1):
                    pass

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for epoch in range(1, 60):
            fd = os.dup(_recorder.arm(arena_bytes=1 << 20, strings_bytes=1 << 16, epoch=epoch))
            _recorder.disarm()
            while not _recorder.release():
                pass
            arena = read_arena(fd)
            assert arena.header["epoch"] == epoch
            assert arena.header["recording"] == 0
            assert set(arena.names()) <= {"reused", "fresh"}
            os.close(fd)
        stop.set()
        for thread in threads:
            thread.join()
        """)


# Forbids membarrier(2) to the process, as a sandbox does.
NO_MEMBARRIER = """
import ctypes, os, struct

if os.uname().machine != "x86_64":
    raise SystemExit
MEMBARRIER, ALLOW, EPERM = 324, 0x7FFF0000, 0x00050001
code = [(0x20, 0, 0, 0), (0x15, 0, 1, MEMBARRIER), (0x06, 0, 0, EPERM), (0x06, 0, 0, ALLOW)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in code))
program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(code), ctypes.addressof(filters)))
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert prctl(22, 2, ctypes.byref(program)) == 0, ctypes.get_errno()  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
assert ctypes.CDLL(None).syscall(MEMBARRIER, 0, 0, 0) == -1
"""


@pytest.mark.parametrize("sandbox", ["", NO_MEMBARRIER], ids=["membarrier", "forbidden"])
def test_an_arena_is_kept_while_a_thread_is_inside_a_write(sandbox: str) -> None:
    """The flag of a write, set by hand: nothing may be unmapped, and no other arena made, until it is clear."""
    run(
        sandbox
        + textwrap.dedent("""
        import ctypes
        from profclient import _recorder
        from profclient._recorder import instant

        THREAD_SLOT, WRITING = 64 + 8, 48  # in Api and Thread: native/recorder/writer.h
        get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
        get_pointer.restype = ctypes.c_void_p
        get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
        api = get_pointer(_recorder._api, b"profclient._recorder._api")
        thread_slot = ctypes.CFUNCTYPE(ctypes.c_void_p)(ctypes.c_void_p.from_address(api + THREAD_SLOT).value)

        _recorder.arm()
        instant("makes this thread known")
        thread = ctypes.c_void_p.from_address(thread_slot()).value
        writing = ctypes.c_uint32.from_address(thread + WRITING)
        assert writing.value == 0
        writing.value = 1
        assert not _recorder.release()
        assert _recorder.arena_fd() != -1
        try:
            _recorder.arm()
        except RuntimeError:
            pass
        else:
            raise AssertionError("a second arena")
        writing.value = 0
        assert _recorder.release()
        assert _recorder.arm() != -1
        """)
    )


def test_the_arena_is_sealed_and_closed_on_exec() -> None:
    run("""
        import fcntl, os
        from profclient import _recorder

        fd = _recorder.arm()
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        wanted = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        assert seals & wanted == wanted, seals
        assert not os.get_inheritable(fd)
        try:
            os.ftruncate(fd, 0)
        except PermissionError:
            pass
        else:
            raise AssertionError("it could be shrunk")
        """)


def test_states_are_as_documented_after_death() -> None:
    writer = Writer()
    try:
        writer.wait_for(10_000)
        writer.kill()
        states = {chunk.state for chunk in read_arena(writer.arena).chunks}
        assert states == {State.OPEN, State.SEALED}
    finally:
        writer.close()


def test_without_membarrier_nothing_is_ever_mapped_anew_where_a_thread_could_write() -> None:
    """GIVEN a sandbox that forbids membarrier(2) THEN arenas are covered by private memory, and recording works."""
    run(
        NO_MEMBARRIER
        + textwrap.dedent("""
        import os, sys, threading

        from profclient import _recorder
        from profclient._recorder import record_function
        from tests.support.arena_reader import read_arena

        def arenas():
            return sum("profd-arena" in line for line in open("/proc/self/maps"))

        stop = threading.Event()
        def work():
            while not stop.is_set():
                with record_function("x"):
                    pass

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        sys.setswitchinterval(1e-5)
        for epoch in range(1, 20):
            fd = os.dup(_recorder.arm(arena_bytes=1 << 20, strings_bytes=1 << 16, epoch=epoch))
            assert arenas()
            assert _recorder.release()
            assert not arenas()
            arena = read_arena(fd)
            assert arena.header["epoch"] == epoch
            os.close(fd)
        stop.set()
        for thread in threads:
            thread.join()
        """)
    )

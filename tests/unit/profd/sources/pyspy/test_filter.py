"""Which system calls are left to a sampler, by the filter's own steps."""

from __future__ import annotations

import os

import pytest
from profd.sources.pyspy import filter as calls

from tests.support.bpf import ALLOW, ASK, ENOSYS, EPERM, answer

SECRET = bytes(range(1, 9))
WORD = int.from_bytes(SECRET, "little")
TARGET = 4711
WRITTEN = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | 0x8000
X86 = {
    "open": 2,
    "stat": 4,
    "openat": 257,
    "clone": 56,
    "fcntl": 72,
    "ptrace": 101,
    "prlimit64": 302,
    "readv": 310,
    "exec": 322,
}
X32 = 0x40000000


def program(machine: str = "x86_64", native: bool = False, warden: bool = False) -> bytes:
    built = calls.build(machine, TARGET, SECRET, native=native, warden=warden)
    assert built is not None
    return built


@pytest.mark.parametrize(
    ("call", "arguments", "verdict"),
    [
        ("readv", (TARGET,), ALLOW),
        ("readv", (TARGET + 1,), EPERM),
        ("readv", (os.getpid(),), EPERM),
        ("exec", (3, 0, 0, 0, 0x1000, WORD), ALLOW),
        ("exec", (3, 0, 0, 0, 0x1000, WORD ^ 1), EPERM),
        ("exec", (3, 0, 0, 0, 0x1000, WORD ^ 1 << 63), EPERM),
        ("exec", (3, 0, 0, 0, 0, WORD), EPERM),
        ("open", (0, os.O_RDONLY | os.O_CLOEXEC | 0x8000), ALLOW),
        ("open", (0, WRITTEN), ALLOW),
        ("open", (0, os.O_RDWR), EPERM),
        ("open", (0, os.O_WRONLY), EPERM),
        ("open", (0, os.O_RDONLY | os.O_TRUNC), EPERM),
        ("openat", (0, 0, WRITTEN), ALLOW),
        ("openat", (0, 0, WRITTEN | os.O_APPEND), EPERM),
        ("clone", (0x7D0F00,), ASK),  # a thread, as musl makes them
        ("clone", (0x3D0F00,), ASK),  # as glibc does
        ("clone", (17,), EPERM),
        ("clone", (0x3D0F00 | 0x10000000,), EPERM),
        ("clone", (0x3D0F00 | 0x00020000,), EPERM),
        ("fcntl", (0, os.F_OK + 2), ALLOW),
        ("fcntl", (0, 8), EPERM),  # F_SETOWN: who gets signals
        ("prlimit64", (0, 7, 0, 1), ALLOW),
        ("prlimit64", (0, 7, 1 << 40, 0), EPERM),
        ("prlimit64", (1, 7, 0, 1), EPERM),
        ("ptrace", (0x4206, TARGET), ENOSYS),
    ],
)
def test_arguments_are_looked_at(call: str, arguments: tuple[int, ...], verdict: int) -> None:
    assert answer(program(), "x86_64", X86[call], *arguments) == verdict


def test_a_warden_is_asked_before_files_are_opened_and_threads_seized() -> None:
    watched = program(native=True, warden=True)
    assert answer(watched, "x86_64", X86["open"], 0, os.O_RDONLY) == ASK
    assert answer(watched, "x86_64", X86["openat"], 0, 0, os.O_RDONLY) == ASK
    assert answer(watched, "x86_64", X86["stat"]) == ASK
    assert answer(program(), "x86_64", X86["stat"]) == ALLOW
    assert answer(watched, "x86_64", X86["ptrace"], 0x4206, 1) == ASK
    assert answer(watched, "x86_64", X86["ptrace"], 2, 1) == ALLOW  # PEEKDATA of what was seized
    assert answer(watched, "x86_64", X86["ptrace"], 4, 1) == EPERM  # POKETEXT
    assert answer(program(native=True), "x86_64", X86["ptrace"], 0x4206, 1) == ALLOW


# socket, kill, tkill, tgkill, execve, setuid, mount, unshare, setns, bpf, io_uring_setup, userfaultfd, keyctl,
# pidfd_getfd
X86_GONE = (41, 62, 200, 234, 59, 105, 165, 272, 308, 321, 425, 323, 250, 438)
AARCH64_GONE = (198, 129, 130, 131, 221, 146, 40, 97, 268, 280, 425, 282, 219, 438)


@pytest.mark.parametrize(("machine", "gone"), [("x86_64", X86_GONE), ("aarch64", AARCH64_GONE)])
@pytest.mark.parametrize("native", [True, False])
def test_what_is_not_named_does_not_exist(machine: str, gone: tuple[int, ...], native: bool) -> None:
    built = program(machine, native=native)
    assert {answer(built, machine, number) for number in gone} == {ENOSYS}
    assert {answer(built, machine, number) for number in range(463, 1024)} == {ENOSYS}


def test_other_numberings_are_no_way_round() -> None:
    assert answer(program(), "x86_64", X86["readv"] | X32, TARGET) == ENOSYS
    assert answer(program(), "aarch64", 0) == ENOSYS


def test_unknown_machine() -> None:
    assert calls.build("m68k", TARGET, SECRET, native=False, warden=False) is None


def test_the_reader_reads_its_target_and_writes_and_no_more() -> None:
    built = calls.build_reader("x86_64", TARGET)
    assert built is not None
    assert answer(built, "x86_64", X86["readv"], TARGET) == ALLOW
    assert answer(built, "x86_64", X86["readv"], TARGET + 1) == EPERM
    for call, arguments in {"open": (0, os.O_RDONLY), "openat": (0, 0, os.O_RDONLY), "clone": (0x3D0F00,)}.items():
        assert answer(built, "x86_64", X86[call], *arguments) == ENOSYS
    assert answer(built, "x86_64", X86["exec"], 3, 0, 0, 0, 0x1000, WORD) == ENOSYS
    assert answer(built, "x86_64", 1) == ALLOW  # write
    assert answer(built, "x86_64", 310 | X32, TARGET) != ALLOW
    assert calls.build_reader("riscv64", TARGET) is None

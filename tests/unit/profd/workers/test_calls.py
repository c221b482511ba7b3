"""The filter of system calls, run here as the kernel would: also for the machine that this is not."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from profd.workers import calls

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, ASK, EPERM, ENOSYS = 0x7FFF0000, 0x7FC00000, 0x00050001, 0x00050026
THREAD = 0x003D0F00
PID = 4321


def verdict(machine: str, number: int, arguments: Sequence[int] = (), *, arch: int = 0, ask: bool = False) -> int:
    """What the filter returns for a call."""
    words = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=IIQ6Q", number, arch or AUDIT_ARCH[machine], 0, *words)
    steps = list(struct.iter_unpack("=HBBI", calls.program(PID, ask=ask, machine=machine)))
    at = value = 0
    while True:
        code, true, false, operand = steps[at]
        at += 1
        match code:
            case 0x20:  # load
                (value,) = struct.unpack_from("=I", data, operand)
            case 0x54:  # and
                value &= operand
            case 0x15:  # jump if equal
                at += true if value == operand else false
            case 0x06:  # return
                return int(operand)


@pytest.mark.parametrize("machine", AUDIT_ARCH)
def test_what_is_listed_passes_and_nothing_else(machine: str) -> None:
    listed = calls.allowed(machine)
    checked = {listed[name] for name in calls._column(calls._CHECKED, 1)}
    quiet = set(calls._column(calls._WITHOUT, calls._MACHINES[machine]).values())
    for number in range(600):
        if number in checked:
            continue
        expected = ALLOW if number in listed.values() else ENOSYS
        assert verdict(machine, number) == expected
        asked = ASK if expected == ENOSYS and number not in quiet else expected
        assert verdict(machine, number, ask=True) == asked
    other = "aarch64" if machine == "x86_64" else "x86_64"
    assert verdict(machine, listed["read"], arch=AUDIT_ARCH[other], ask=True) == ENOSYS
    assert verdict(machine, listed["read"] | 0x40000000) == ENOSYS


@pytest.mark.parametrize("machine", AUDIT_ARCH)
@pytest.mark.parametrize(
    ("name", "arguments", "passes"),
    [
        ("clone", (THREAD,), True),
        ("clone", (THREAD | 0x00400000,), True),  # musl's
        ("clone", (17,), False),  # fork
        ("clone", (THREAD | 0x10000000,), False),  # CLONE_NEWUSER
        ("clone", (0x100,), False),
        ("tgkill", (PID, 1, 9), True),
        ("tgkill", (PID + 1, 1, 9), False),
        ("tgkill", (0xFFFFFFFF, 1, 9), False),
        ("prlimit64", (0, 7), True),
        ("prlimit64", (PID, 7), True),
        ("prlimit64", (1, 7), False),
        ("setpriority", (0, 0, 10), True),
        ("setpriority", (0, 7, 10), False),  # of another process
        ("setpriority", (1, 0, 10), False),  # of a process group
        ("setpriority", (2, 0, 10), False),  # of all that the user runs
        ("getpriority", (0, 0), True),
        ("getpriority", (0, 7), False),
        ("fcntl", (0, 3), True),
        ("fcntl", (0, 8), False),  # F_SETOWN
        ("fcntl", (0, 1024), False),  # F_SETLEASE
        ("ioctl", (0, 0x5401), True),
        ("ioctl", (0, 0x5412), False),  # TIOCSTI
        ("prctl", (15,), True),
        ("prctl", (1,), False),  # PR_SET_PDEATHSIG
        ("sendto", (0, 0, 0, 0, 0), True),
        ("sendto", (0, 0, 0, 0, 1 << 32), False),
        ("sendto", (0, 0, 0, 0, 1), False),
    ],
)
def test_arguments_are_looked_at(machine: str, name: str, arguments: tuple[int, ...], passes: bool) -> None:
    found = verdict(machine, calls.allowed(machine)[name], arguments, ask=True)
    assert found == (ALLOW if passes else EPERM)


def test_numbers_of_aarch64_are_the_generic_ones() -> None:
    header = Path("/usr/include/asm-generic/unistd.h")
    if not header.exists():
        pytest.skip("no generic table of calls here (linux-libc-dev)")
    known = {
        name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    }
    known["newfstatat"] = known["fstatat"]
    assert {name: known[name] for name in calls.allowed("aarch64")} == calls.allowed("aarch64")

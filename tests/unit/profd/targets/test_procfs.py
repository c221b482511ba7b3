"""Parsing of stat and status, which belong to hostile processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.targets import procfs

STAT = b"4 (%s) S 1 4 4 0 -1 4194560 0 0 0 0 7 3 0 0 20 0 1 0 555 8192 1 99 1 2 12345 0 0 0 0 0\n"


@given(st.binary(max_size=32))
def test_stat_with_any_command_name(name: bytes) -> None:
    stat = procfs.parse_stat(STAT % name)
    assert stat is not None
    assert (stat.state, stat.ppid, stat.start_ticks, stat.cpu_ticks, stat.vsize) == ("S", 1, 555, 10, 8192)
    assert not stat.kernel_thread


@given(st.binary(max_size=200))
def test_stat_of_garbage_does_not_raise(raw: bytes) -> None:
    procfs.parse_stat(raw)
    procfs.parse_status(raw)


@pytest.mark.parametrize("cut", range(0, len(STAT), 7))
def test_truncated_stat(cut: int) -> None:
    procfs.parse_stat(STAT[:cut])


def test_own_stat_agrees_with_the_kernel() -> None:
    raw = procfs.read(Path("/proc/self/stat"), procfs.STAT_BYTES)
    stat = procfs.parse_stat(raw or b"")
    assert stat is not None
    assert stat.ppid == os.getppid()


@pytest.mark.parametrize(
    ("ids", "owner"),
    [
        ("1000 1000 1000 1000", 1000),
        ("1000 0 0 0", 0),  # setuid root, started by 1000
        ("0 1000 0 1000", 0),  # root that put on a mask
        ("1000 1001 1001 1001", 1001),  # setuid to another user
    ],
)
def test_owner_is_the_more_powerful_identity(ids: str, owner: int) -> None:
    status = procfs.parse_status(f"Name:\tx\nUid:\t{ids}\nGid:\t5 5 5 5\nNSpid:\t40\t7\nTracerPid:\t9\n".encode())
    assert status == procfs.Status(owner, 5, (40, 7), 9, tuple(map(int, ids.split())), (5,) * 4)


def test_groups_of_this_process() -> None:
    assert set(procfs.groups_of(os.getpid())) == {*os.getgroups(), os.getgid()}
    assert procfs.groups_of(2**22 + 1) == ()


def test_a_setgid_program_is_not_its_users_to_look_into() -> None:
    status = procfs.parse_status(b"Name:\tx\nUid:\t5 5 5 5\nGid:\t5 42 42 42\nNSpid:\t40\n")
    assert status is not None
    assert status.uid == 0


@pytest.mark.parametrize(
    "name", [b"\nUid:\t7 7 7 7\n", b"a\\nUid:\t7 7 7", b"\r\x0bUid:\t7\x0c\x1c", b"\n\nTracerPid:\t7"]
)
def test_a_real_process_says_nothing_of_itself_by_its_name(name: bytes) -> None:
    # WHEN the kernel itself writes the status of a process with such a name
    before = Path("/proc/self/comm").read_bytes().rstrip(b"\n")
    Path("/proc/self/comm").write_bytes(name)  # as prctl(PR_SET_NAME)
    try:
        status, stat = procfs.status_of(os.getpid()), procfs.parse_stat(Path("/proc/self/stat").read_bytes())
    finally:
        Path("/proc/self/comm").write_bytes(before)
    # THEN it is still whose it is, and nobody traces it who does not
    assert status is not None
    assert (status.uid, status.gid) == (os.getuid(), os.getgid())
    assert status.tracer == procfs.status_of(os.getpid()).tracer  # type: ignore[union-attr]
    assert stat is not None
    assert stat.ppid == os.getppid()


def test_status_without_owner() -> None:
    assert procfs.parse_status(b"Name:\tx\nGid:\t1 1 1 1\n") is None


def test_read_is_bounded_and_survives_absence(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 100_000)
    assert procfs.read(tmp_path / "long", 10) == b"x" * 10
    assert procfs.read(tmp_path / "absent", 10) is None
    assert procfs.link(tmp_path / "absent") == ""


def test_printable() -> None:
    assert (
        procfs.printable(b"a\x1b[31mb\xff\n", 100)
        == "a\N{REPLACEMENT CHARACTER}[31mb" + "\N{REPLACEMENT CHARACTER}" * 2
    )

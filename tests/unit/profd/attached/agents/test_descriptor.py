"""Descriptors that pretend to be arenas."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from profd.attached.agents.descriptor import check_untrusted_arena
from profd.attached.agents.protocol import Hostile
from profd.limits import ARENA_BYTES_MAX

from tests.support.fake_agent import SEALS, MiB, memfd


def test_a_sealed_memfd_of_the_size_asked_for_is_an_arena() -> None:
    fd = memfd(2 * MiB)
    try:
        assert check_untrusted_arena(fd, 2 * MiB) == 2 * MiB
        assert check_untrusted_arena(fd) == 2 * MiB
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("size", "seals"),
    [
        (MiB, 0),
        (MiB, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW),
        (MiB, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL),
        (MiB, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL),
        (MiB, SEALS | fcntl.F_SEAL_WRITE),
        (MiB, SEALS | 0x10),  # F_SEAL_FUTURE_WRITE: nobody could free what is allocated in it
        (2 * MiB, SEALS),
        (0, SEALS),
    ],
)
def test_what_could_change_under_its_reader_is_hostile(size: int, seals: int) -> None:
    fd = memfd(size, seals)
    try:
        with pytest.raises(Hostile):
            check_untrusted_arena(fd, MiB)
    finally:
        os.close(fd)


def test_too_small_and_too_large_ones_are_hostile_whatever_was_asked_for() -> None:
    for size in (4096, ARENA_BYTES_MAX + 4096):
        fd = memfd(size)
        try:
            with pytest.raises(Hostile):
                check_untrusted_arena(fd)
        finally:
            os.close(fd)


def test_huge_pages_are_hostile() -> None:
    """They can be gone when they are read: the pool is the host's."""
    try:
        fd = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
    except OSError as error:
        pytest.skip(f"this kernel has none: {error.strerror}")
    try:
        os.ftruncate(fd, ARENA_BYTES_MAX)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        with pytest.raises(Hostile, match="huge pages"):
            check_untrusted_arena(fd, ARENA_BYTES_MAX)
    finally:
        os.close(fd)


def test_files_pipes_and_sockets_are_hostile(tmp_path: Path) -> None:
    file = os.open(tmp_path / "arena", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, MiB)
    read, write = os.pipe()
    for fd in (file, read, write):
        try:
            with pytest.raises(Hostile):
                check_untrusted_arena(fd, MiB)
        finally:
            os.close(fd)

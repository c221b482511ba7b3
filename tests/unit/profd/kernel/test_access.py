"""What an identity may do with a folder, beside what the kernel lets it do."""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from profd.kernel.access import PASS, READ, WRITE, finds, may

USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
NOBODYS = 0xFFFFFFFF
RELATIVE = ("../own/./file", "../shut/file", "nowhere")
EXIST = 'test -e "$0" && echo 1 || echo 0; for path in "$@"; do test -e "$path" && echo 1 || echo 0; done'
ASKS = 'for what in r w x; do test -$what "$0" && echo 1 || echo 0; done'


def listed(*entries: tuple[int, int, int]) -> bytes:
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in sorted(entries))


@pytest.fixture
def passable() -> Iterator[Path]:
    """A folder that everybody may pass, as pytest's own are not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o711)
        yield Path(made)


@pytest.mark.parametrize("mode", [0o700, 0o070, 0o007, 0o750, 0o711, 0o733])
@pytest.mark.parametrize(
    "entries",
    [
        None,
        [(USER_OBJ, 7, NOBODYS), (USER, 3, 1000), (GROUP_OBJ, 4, NOBODYS), (MASK, 5, NOBODYS), (OTHER, 1, NOBODYS)],
        [(USER_OBJ, 0, NOBODYS), (GROUP_OBJ, 1, NOBODYS), (GROUP, 6, 8), (MASK, 7, NOBODYS), (OTHER, 7, NOBODYS)],
        [(USER_OBJ, 7, NOBODYS), (GROUP_OBJ, 0, NOBODYS), (GROUP, 7, 9), (MASK, 1, NOBODYS), (OTHER, 0, NOBODYS)],
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="being others takes root")
def test_it_is_what_the_kernel_lets_them(passable: Path, mode: int, entries: Any) -> None:
    folder = passable / "it"
    folder.mkdir()
    os.chown(folder, 1001, 7)
    folder.chmod(mode)
    if entries is not None:
        try:
            os.setxattr(folder, "system.posix_acl_access", listed(*entries))
        except OSError as error:
            pytest.skip(f"no access lists here: {error.strerror}")
    descriptor = os.open(folder, os.O_PATH)
    for uid, gid, groups in (
        (1001, 5, []),
        (1000, 7, []),
        (1000, 5, [8]),
        (1000, 5, [9]),
        (1000, 5, [7, 8]),
        (1002, 5, []),
    ):
        asks = ["sh", "-c", ASKS, str(folder)]
        said = subprocess.check_output(asks, user=uid, group=gid, extra_groups=groups, cwd="/", text=True)
        ours = [int(may(descriptor, need, uid, [gid, *groups])) for need in (READ, WRITE, PASS)]
        assert ours == list(map(int, said.split())), (uid, gid, groups)
    assert may(descriptor, READ | WRITE | PASS, 0, ())
    os.close(descriptor)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user")
def test_what_is_found_is_what_the_user_finds(passable: Path) -> None:
    """Also by links of their own, and by way of folders that they may not pass; the kernel's answer is ours."""
    shut, own = passable / "shut", passable / "own"
    for folder in (shut, own):
        folder.mkdir()
        (folder / "file").touch()
    shut.chmod(0o700)
    ways = [own / "file", own, shut / "file", shut, Path(f"{shut}/../own/file"), *map(Path, RELATIVE)]
    for number, leads_to in enumerate(ways):
        (own / f"link{number}").symlink_to(leads_to)
    (own / "circle").symlink_to("circle")
    (own / "through").symlink_to(own)
    names = ["file", "none", "file/x", "circle", "through/through/file", "through/link2", "link1/link0"]
    paths = [own / name for name in [*names, *(f"link{number}" for number in range(len(ways)))]]
    paths += [shut, shut / "file", Path("/"), Path("/proc/1/root/etc")]
    asked = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", "sh", "-c"]
    said = subprocess.run([*asked, EXIST, *map(str, paths)], capture_output=True, text=True, check=True).stdout
    assert [finds(bytes(path), 1000, [1000]) for path in paths] == [word == "1" for word in said.split()]
    assert all(finds(bytes(path), 0, []) for path in (shut / "file", own / "link2", own / "link4"))
    assert not finds(b"/proc/self/root/etc", 0, [])  # whoever's link it is: nothing by /proc


def test_a_long_list_counts_to_its_end() -> None:
    named = [(USER, 7, 10_000 + number) for number in range(5000)]
    entries = [(USER_OBJ, 7, NOBODYS), *named, (GROUP_OBJ, 0, NOBODYS), (MASK, 1, NOBODYS), (OTHER, 7, NOBODYS)]
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        try:
            os.setxattr(file.fileno(), "system.posix_acl_access", listed(*entries))
        except OSError as error:
            pytest.skip(f"no such list here: {error.strerror}")
        assert may(file.fileno(), PASS, 10_001, [])
        assert not may(file.fileno(), READ, 10_001, [])
        assert not may(file.fileno(), READ, 14_999, [])

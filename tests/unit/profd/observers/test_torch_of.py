"""What torch a process has and where its user keeps builds, read as data from a made-up /proc."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from profd.observers import torch_of
from profd.observers.torch_of import Elsewhere, look
from profd.targets.process import Process, ProcessId

from tests.support import other_program

PROCESS = Process(ProcessId(7, 1), 1, 4_000_001, 4_000_002, "u", "python train.py", framework="torch", python=True)
VERSION = """from typing import Optional
__version__ = '2.13.0+cu130'
debug = False
cuda: Optional[str] = '13.0'
git_version = 'cf30153c4c131c8164ee7798e5022d810682e2cb'
"""


class Target:
    """Process 7, whose root is ours."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.home = folder / "site" / "torch"
        self.folder = self.proc / "7"
        for process in ("7", "self", "1"):
            (self.proc / process / "ns").mkdir(parents=True)
            self.mounts(process, "mnt:[4026531840]")
        (self.folder / "root").symlink_to("/")
        (self.home / "lib").mkdir(parents=True)
        (self.home / "version.py").write_text(VERSION)
        self.maps(str(self.home / "lib" / "libtorch_cpu.so"))
        self.environ(b"HOME=/home/u")

    def mounts(self, process: str, name: str) -> None:
        link = self.proc / process / "ns" / "mnt"
        link.unlink(missing_ok=True)
        link.symlink_to(name)

    def maps(self, path: str) -> None:
        (self.folder / "maps").write_text(f"7f00-7f01 r-xp 00000000 08:01 1234    {path}\n")

    def environ(self, *entries: bytes) -> None:
        (self.folder / "environ").write_bytes(b"\0".join(entries) + b"\0")


@pytest.fixture
def target() -> Iterator[Target]:
    """Where its user, who is none, may look, as pytest's own folders are not."""
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Target(Path(made).resolve())


def why_not(target: Target) -> str:
    with pytest.raises(Elsewhere) as found:
        look(PROCESS, target.proc)
    return str(found.value)


def test_a_torch_is_read_from_its_files(target: Target) -> None:
    found = look(PROCESS, target.proc)
    assert (found.torch, found.git) == ("2.13.0+cu130", "cf30153c4c131c8164ee7798e5022d810682e2cb")
    assert (found.cuda, found.cxx11_abi, found.home) == ("13.0", True, str(target.home))
    assert (found.cache, found.uid, found.gid, found.pid) == ("/home/u/.cache", 4_000_001, 4_000_002, 0)


def test_the_old_abi_is_said_by_torchs_own_build_files(target: Target) -> None:
    (target.home / "share/cmake/Torch").mkdir(parents=True)
    config = target.home / "share/cmake/Torch/TorchConfig.cmake"
    config.write_text('set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")')
    assert not look(PROCESS, target.proc).cxx11_abi


@pytest.mark.parametrize(
    ("entries", "cache"),
    [
        ((b"XDG_CACHE_HOME=/x", b"HOME=/home/u"), "/x"),
        ((b"XDG_CACHE_HOME=", b"HOME=/home/u"), "/home/u/.cache"),
        ((b"XDG_CACHE_HOME=relative", b"HOME=/home/u"), "/home/u/.cache"),
        ((b"XDG_CACHE_HOME=/first", b"XDG_CACHE_HOME=/second"), "/first"),
        ((b"XDG_CACHE_HOME=/-o \"'$(id)`;", b"HOME=/"), "/-o \"'$(id)`;"),
    ],
)
def test_the_cache_is_where_its_client_looks(target: Target, entries: tuple[bytes, ...], cache: str) -> None:
    target.environ(*entries)
    assert look(PROCESS, target.proc).cache == cache


@pytest.mark.parametrize("entry", [b"HOME=relative", b"XDG_CACHE_HOME=/a/../etc", b"HOME=/a\nb", b"HOME=/\x1b[2J", b""])
def test_a_path_that_leads_astray_is_not_taken(target: Target, entry: bytes) -> None:
    target.environ(entry)  # and nobody has this uid
    assert "cache of its user is not known" in why_not(target)


def test_a_user_without_a_home_in_the_environment_has_one_in_the_database(target: Target) -> None:
    target.environ(b"PATH=/bin")
    assert look(replace(PROCESS, uid=0), target.proc).cache == f"{os.path.expanduser('~root')}/.cache"


@pytest.mark.parametrize("version", ["__version__ = '2.13\"; rm'", "__version__ = '-o'", "__version__ = ''", ""])
def test_a_version_that_is_none_is_not_taken(target: Target, version: str) -> None:
    (target.home / "version.py").write_text(f"{version}\ngit_version = 'abc'\n")
    assert "version of its torch is not known" in why_not(target)


@pytest.mark.parametrize(
    "path", ["/nowhere/libtorch_cpu.so", "/a\\012b/lib/libtorch_cpu.so", "/a/../b/lib/libtorch_cpu.so", "/usr/lib/x.so"]
)
def test_a_library_that_is_in_no_package_is_told(target: Target, path: str) -> None:
    target.maps(path)
    assert "profctl torch build" in why_not(target)


def test_a_link_in_the_way_to_the_package_is_not_followed(target: Target, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(target.home)
    target.maps(str(tmp_path.resolve() / "link" / "lib" / "libtorch_cpu.so"))
    assert "version of its torch is not known" in why_not(target)


def test_another_mount_namespace_or_root_is_told_to_build_in_its_image(target: Target, tmp_path: Path) -> None:
    target.mounts("7", "mnt:[4026539999]")
    assert "in its image" in why_not(target)
    target.mounts("7", "mnt:[4026531840]")
    (target.folder / "root").unlink()
    (target.folder / "root").symlink_to(tmp_path)
    assert "in its image" in why_not(target)


def test_a_daemon_with_mounts_of_its_own_goes_through_the_targets_root(target: Target) -> None:
    target.mounts("self", "mnt:[4026531999]")  # a service with ProtectSystem=, and a job of the host
    assert look(PROCESS, target.proc).pid == 7


@other_program.needs_setuid
def test_nothing_is_known_of_a_program_that_its_process_has_become_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's: its folders, the cache that its environment names."""
    with other_program.target() as target:

        def torch_of_root(process: Process, proc: Path) -> torch_of.Wanted:
            target.say("setuid")
            return torch_of.Wanted("2.13.0", "cf30", True, "", "/root/torch", "/root/.cache", process.uid, process.gid)

        monkeypatch.setattr(torch_of, "_look", torch_of_root)
        with pytest.raises(torch_of.Elsewhere, match="runs another program"):
            torch_of.look(target.process())


@pytest.mark.skipif(os.geteuid() != 0, reason="takes a file that its user may not find")
def test_a_build_is_there_where_its_user_finds_it() -> None:
    """GIVEN a link of the user's in the place of a build, to a file in another one's home WHEN an estimate asks whether
    there is a build by now THEN it does not tell whether there is such a file."""
    nobodys = Process(ProcessId(os.getpid(), 1), 1, other_program.NOBODY, other_program.NOBODY, "nobody", "python")
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        folder, home = Path(name), Path(name, "home")
        folder.chmod(0o755)
        home.mkdir(mode=0o700)
        (home / "file").touch()
        (folder / "file").touch()
        for place, there in ((folder, True), (home, False)):
            (folder / "build.json").unlink(missing_ok=True)
            (folder / "build.json").symlink_to(place / "file")
            assert torch_of.lies_at(str(folder / "build.json"), nobodys) is there

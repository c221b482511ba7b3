"""What torch a process has, and where its user keeps builds: read from its files as data, nothing of it is run.

All of it is the target's own word. It is only ever used with the target's own uid, so that a lie harms the liar.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profd.errors import Exhausted
from profd.kernel import names
from profd.targets import procfs
from profd.targets.errands.child import NoAnswer
from profd.targets.errands.office import errands
from profd.targets.identity import Accepted
from profd.targets.mapped import parse_maps, read
from profd.targets.process import Process

_PROC: Final = Path("/proc")
_ELSEWHERE: Final = (
    "it is in a container or has another root, so build it in its image: "
    "profctl torch build --into /usr/local/lib/profd/torch"
)
_VERSION: Final = re.compile(rb"^__version__ = '([0-9A-Za-z][0-9A-Za-z.+_-]{0,63})'", re.MULTILINE)
_GIT: Final = re.compile(rb"^git_version = '([0-9A-Za-z]{1,64})'", re.MULTILINE)
_CUDA: Final = re.compile(rb"^cuda: Optional\[str\] = '([0-9.]{1,16})'", re.MULTILINE)
_ABI: Final = re.compile(rb"-D_GLIBCXX_USE_CXX11_ABI=([01])")
_FILE_BYTES: Final = 1 << 16
_PATH_BYTES_MAX: Final = 1024


class Elsewhere(Exception):
    """Nothing can be built for it from here; str() says what brings an observer."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an observer is to be built for, and for whom."""

    torch: str  # version
    git: str
    cxx11_abi: bool
    cuda: str
    home: str  # of the package
    cache: str  # XDG's, of the user
    uid: int
    gid: int
    pid: int = 0  # whose root is to be gone through, where our own mounts are read-only; 0: ours
    start_ticks: int = 0  # of that process
    mounts: str = ""  # the same: the name of its namespace


def look(process: Process, proc: Path = _PROC) -> Wanted:
    """What is wanted for a process, of one program of its. Raises Elsewhere."""
    if proc != _PROC:
        return _look(process, proc)
    try:
        with contextlib.closing(Accepted(process.id, process.uid)) as accepted:
            if why_not := accepted.hold():
                raise Elsewhere(why_not)
            found = _look(process, proc)
            if not accepted.same:
                raise Elsewhere(accepted.moved_on())
            return found
    except Exhausted as error:
        raise Elsewhere(str(error)) from error


def _look(process: Process, proc: Path) -> Wanted:
    folder = proc / str(process.id.pid)
    other = _mounts(folder, proc)
    library = parse_maps(procfs.read(folder / "maps", procfs.MAPS_BYTES) or b"").torch_library
    home, _, tail = library.rpartition("/lib/")
    if not home or "/" in tail or not _plain(home):
        raise Elsewhere("the place of its torch is not known; build it by hand: profctl torch build")
    files = (f"{home}/version.py", f"{home}/share/cmake/Torch/TorchConfig.cmake")
    gids = [process.gid, *procfs.groups_of(process.id.pid, proc)]
    text, build = read(folder / "root", files, _FILE_BYTES, process.uid, gids)
    version, git, cuda = (pattern.search(text) for pattern in (_VERSION, _GIT, _CUDA))
    if version is None or git is None:
        raise Elsewhere("the version of its torch is not known; build it by hand: profctl torch build")
    abi = _ABI.search(build)
    return Wanted(
        torch=version[1].decode(),
        git=git[1].decode(),
        cxx11_abi=abi is None or abi[1] == b"1",
        cuda=cuda[1].decode() if cuda else "",
        home=home,
        cache=_cache(folder, process.uid),
        uid=process.uid,
        gid=process.gid,
        pid=process.id.pid if other else 0,
        start_ticks=process.id.start_ticks if other else 0,
        mounts=other,
    )


def still_there(wanted: Wanted, proc: Path = _PROC) -> bool:
    """Its process is the one that was looked at, not another of its pid, with the mounts and root that it had."""
    folder = proc / str(wanted.pid)
    stat = procfs.stat_of(wanted.pid, proc)
    same = stat is not None and stat.start_ticks == wanted.start_ticks
    return same and procfs.link(folder / "ns/mnt") == wanted.mounts and _our_root(folder)


def _mounts(folder: Path, proc: Path) -> str:
    """The host's, if it has those and not ours: a service sees those with limits of its own. Raises Elsewhere."""
    theirs = procfs.link(folder / "ns/mnt")
    ours, hosts = procfs.link(proc / "self/ns/mnt"), procfs.link(proc / "1/ns/mnt")
    if not theirs or theirs not in (ours, hosts) or not _our_root(folder):
        raise Elsewhere(_ELSEWHERE)
    return theirs if theirs != ours else ""


def _our_root(folder: Path) -> bool:
    try:
        return errands.once(folder, "same_root", os.fsencode(folder / "root")) is True
    except (NoAnswer, OSError):
        return False


def lies_at(path: str, process: Process, proc: Path = _PROC) -> bool:
    """Whether there is such a file, where the user of a process has it, who may have put a link there."""
    gids = [process.gid, *procfs.groups_of(process.id.pid)]
    try:
        return errands.once(proc / str(process.id.pid), "exists", os.fsencode(path), process.uid, gids) is True
    except (NoAnswer, OSError):
        return False


def _cache(folder: Path, uid: int) -> str:
    """As its client finds it: profclient.torch.builds.cache. Raises Elsewhere."""
    said = _variables(procfs.read(folder / "environ", procfs.ENVIRON_BYTES) or b"")
    given, home = said.get("XDG_CACHE_HOME", ""), said.get("HOME", "")
    if given.startswith("/"):
        cache = given
    elif home.startswith("/"):
        cache = f"{home}/.cache"
    else:
        found = names.home(uid)
        cache = f"{found}/.cache" if found else ""
    if not cache.startswith("/") or not _plain(cache):
        raise Elsewhere("the cache of its user is not known; build it by hand: profctl torch build")
    return cache


def _variables(raw: bytes) -> dict[str, str]:
    """Two of its variables, which are looked at and not kept; the first of a name counts, as for getenv(3)."""
    found: dict[str, str] = {}
    for entry in raw.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name in (b"XDG_CACHE_HOME", b"HOME"):
            found.setdefault(name.decode(), os.fsdecode(value))
    return found


def _plain(path: str) -> bool:
    """One that can be told in a line, and leads nowhere by `..`."""
    return path.isprintable() and len(os.fsencode(path)) <= _PATH_BYTES_MAX and ".." not in path.split("/")

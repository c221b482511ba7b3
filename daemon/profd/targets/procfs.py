"""Bounded reads of /proc, and the parsing of its two stable files.

Everything here belongs to processes that may be hostile and may vanish at any
moment: a read that fails for either reason is None, never an exception. So is
one of a process that does not answer (`unanswering` tells), for which nobody
waits longer than targets/guarded.py says. No other module of the daemon looks
into another process (tests/unit/profd/targets/test_one_room.py).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from profd.limits import PROC_MAPS_BYTES
from profd.model.text import printable_text
from profd.targets import guarded
from profd.targets.guarded import Operation, Request

STAT_BYTES: Final = 4096
STATUS_BYTES: Final = 16384
_LOOKED_AT: Final = (("stat", STAT_BYTES), ("status", STATUS_BYTES))
_LOOKS_TOGETHER: Final = 8  # processes: two files each, and 16 for one child
COMMAND_BYTES: Final = 8192
ENVIRON_BYTES: Final = 1 << 20
MAPS_BYTES: Final = PROC_MAPS_BYTES
CGROUP_BYTES: Final = 16384
DESCRIPTORS_LISTED: Final = 4096  # of one process, when looking for GPUs

_KTHREADD: Final = 2  # whose children they are
_CHILDREN_BYTES: Final = 1 << 20
_KERNEL_THREAD: Final = 0x00200000  # PF_KTHREAD in field 9 of stat
_EXITING: Final = 0x00000004  # PF_EXITING: it has no memory any more, or is about to give it back
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_STAT_FIELDS: Final = 26  # after the command name; field 28 of proc(5) is the last that there has to be


# Of another process. What else there is in its folder waits for its exec (measured, decision 0010), or takes hold of
# its memory for a moment: who lets go of that last, because the process was killed meanwhile, gives it back in its
# place, and waits for the files that were mapped there (decision 0053).
_OTHERS: Final = re.compile(r"^/proc/(\d+)/(?:task/\d+/)?(.+)$", re.ASCII)
_ANSWERED_AT_ONCE: Final = frozenset({"comm", "cgroup", "limits", "schedstat"})
_NOT_THERE: Final = frozenset({-errno.ENOENT, -errno.ESRCH, -errno.EACCES, -errno.EPERM})
LINK_BYTES: Final = 4096
NAME_CHARACTERS: Final = 15
_LINKS_BYTES_EACH: Final = 64  # number, "socket:[4026531840]" or "/dev/nvidia0" and their ends, with room


def read(path: Path | str, limit: int) -> bytes | None:
    """At most `limit` bytes of a /proc file; None if it is gone, not ours to read, or its process does not answer."""
    pid = _guarded(path)
    return _bytes(guarded.ask(pid, [(Operation.READ, str(path), limit)])[0]) if pid else _read(path, limit)


def read_record(path: Path | str, limit: int) -> bytes | None:
    """As `read`, for the files that the kernel hands out whole in one read: stat and status."""
    pid = _guarded(path)
    return _bytes(guarded.ask(pid, [(Operation.RECORD, str(path), limit)])[0]) if pid else _read_record(path, limit)


def link(path: Path | str) -> str:
    """Where a /proc link points, empty if it is gone, not ours to read, or its process does not answer."""
    pid = _guarded(path)
    if pid:
        return os.fsdecode(_bytes(guarded.ask(pid, [(Operation.LINK, str(path), LINK_BYTES)])[0]) or b"")
    try:
        return os.readlink(path)
    except OSError:
        return ""


def links(folder: Path | str, most: int) -> Iterator[tuple[str, str]]:
    """Name and target of the links of a directory, about so many at most; none if it cannot be read."""
    pid = _guarded(folder)
    if not pid:
        yield from _links(folder, most)
        return
    said = _bytes(guarded.ask(pid, [(Operation.LINKS, str(folder), most * _LINKS_BYTES_EACH)])[0]) or b""
    parts = [os.fsdecode(part) for part in said.split(b"\0")]
    yield from zip(parts[:-1:2], parts[1::2], strict=False)


def opened(path: Path | str, flags: int) -> int:
    """A descriptor of something of a process. OSError; TimeoutError where the process does not answer."""
    pid = _guarded(path)
    if not pid:
        return os.open(path, flags | os.O_CLOEXEC)
    answer = guarded.ask(pid, [(Operation.OPEN, str(path), flags)])[0]
    if not isinstance(answer, int) or answer == -errno.EINPROGRESS:
        raise TimeoutError(errno.ETIMEDOUT, "the process does not answer", str(path))
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer), str(path))
    return answer


class HeldMap:
    """The memory of a process from before it is read, by its map: `look_behind` tells whether it has that still."""

    def __init__(self) -> None:
        self.pagemap = -1

    def __enter__(self) -> HeldMap:
        return self

    def __exit__(self, *_: object) -> None:
        if self.pagemap >= 0:
            os.close(self.pagemap)


def together(wanted: list[Request], held: HeldMap) -> list[bytes | None]:
    """Several files and links of one process, in the price of one look; None for each that cannot be had.

    `held` gets its memory map before any of them is read, where that may be had.
    """
    pid = _guarded(wanted[0][1])
    if pid:
        opened_map, *answers = guarded.ask(pid, [(Operation.OPEN, f"/proc/{pid}/pagemap", os.O_RDONLY), *wanted])
        held.pagemap = opened_map if isinstance(opened_map, int) else -1
        return [_bytes(answer) for answer in answers]
    return [os.fsencode(link(path)) if kind is Operation.LINK else _read(path, limit) for kind, path, limit in wanted]


def unanswering(pid: int) -> bool:
    """It did not answer lately, or is not asked now: others of its user did not, or nobody can be (`blind`)."""
    return guarded.unanswering(pid) or bool(blind())


def missed() -> int:
    """How often this thread has asked processes in vain: one may have answered the next question."""
    return guarded.missed()


def silent_of(uids: Collection[int] | None) -> int:
    """The number of processes of these users (None: of anybody) that did not answer lately. Never waits."""
    return guarded.silent_of(uids)


def blind() -> str:
    """A sentence where no process can be asked at all, else empty: then none can be said not to be there."""
    return guarded.sight.why_not


def has_memory(pid: int) -> bool:
    """It has one of its own: not while it ends, and of kernel threads none. False, too, where it does not answer."""
    return (read_record(f"/proc/{pid}/statm", STAT_BYTES) or b"0").split()[0] != b"0"


def resident_of(pid: int) -> tuple[int, int] | None:
    """Bytes of a process in RAM, and those of them that are neither a file's nor shared.

    None where it has no memory (any more), or does not answer. One look of many: that it did not is not noted.
    """
    said = guarded.ask(pid, [(Operation.RECORD, f"/proc/{pid}/statm", STAT_BYTES)], noted=False)[0]
    try:
        total, shared = map(int, (_bytes(said) or b"").split()[1:3])
    except ValueError:
        return None
    return (total * _PAGE_BYTES, max(0, total - shared) * _PAGE_BYTES) if total else None


def silence(pid: int) -> str:
    """A sentence for who asks for such a process."""
    return blind() or (
        f"process {pid} does not answer: it is in the middle of starting another program (execve), on a file system "
        "that does not answer, or its memory is on one, or the host is very busy. Try again in some seconds; look at "
        f"it (cat /proc/{pid}/status), and end it or its file system."
    )


def _guarded(path: Path | str) -> int:
    """The pid of whose answer is to be waited for; 0 where the kernel answers at once."""
    found = _OTHERS.match(str(path))
    if found is None or found[2] in _ANSWERED_AT_ONCE or found[2].startswith("net/"):
        return 0
    return int(found[1])


def _bytes(answer: bytes | int) -> bytes | None:
    return answer if isinstance(answer, bytes) else None


def _read(path: Path | str, limit: int) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        parts: list[bytes] = []
        have = 0
        while have < limit:
            part = os.read(fd, min(limit - have, 1 << 16))
            if not part:
                break
            parts.append(part)
            have += len(part)
        return b"".join(parts)
    except OSError:  # ESRCH: it ended between open and read
        return None
    finally:
        os.close(fd)


def _read_record(path: Path | str, limit: int) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.read(fd, limit)
    except OSError:
        return None
    finally:
        os.close(fd)


def _links(folder: Path | str, most: int) -> Iterator[tuple[str, str]]:
    try:
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number >= most:
                    return
                yield entry.name, link(entry.path)
    except OSError:  # gone, or not ours to read
        return


def printable(raw: bytes, limit: int) -> str:
    """Text that cannot play with a terminal: what is not printable becomes U+FFFD."""
    return printable_text(raw.decode("utf-8", "replace"), limit)


@dataclass(frozen=True, slots=True)
class Stat:
    """The used fields of /proc/PID/stat. `cpu_ticks` is user plus system time, `vsize` is in bytes."""

    state: str
    ppid: int
    start_ticks: int
    cpu_ticks: int
    vsize: int
    image: tuple[str, int]  # command name and stack base: both change with exec, a pid does not
    kernel_thread: bool
    exiting: bool
    layout: tuple[int, ...]  # where its code, data, heap and stack begin; zeros and ones where that is not ours to know


def parse_stat(raw: bytes) -> Stat | None:
    """Parse stat. The command name is the process's own choice and may hold `)` and spaces."""
    opening, closing = raw.find(b"("), raw.rfind(b")")
    fields = raw[closing + 1 :].split()
    if opening < 0 or closing < opening or len(fields) < _STAT_FIELDS:
        return None
    try:
        return Stat(
            state=fields[0].decode("ascii"),
            ppid=int(fields[1]),
            start_ticks=int(fields[19]),
            cpu_ticks=int(fields[11]) + int(fields[12]),
            vsize=int(fields[20]),
            image=(printable(raw[opening + 1 : closing], 64), int(fields[25])),
            kernel_thread=bool(int(fields[6]) & _KERNEL_THREAD),
            exiting=bool(int(fields[6]) & _EXITING),
            layout=tuple(map(int, fields[23:26] + fields[42:45])),
        )
    except ValueError:
        return None


def stat_of(pid: int, root: Path | str = "/proc") -> Stat | None:
    """What stat says of a process now; None if there is none, or it says nothing that could be understood."""
    raw = read_record(f"{root}/{pid}/stat", STAT_BYTES)
    return None if raw is None else parse_stat(raw)


@dataclass(frozen=True, slots=True)
class Status:
    """The used fields of /proc/PID/status."""

    uid: int
    gid: int
    namespace_pids: tuple[int, ...]
    tracer: int  # pid of a ptrace tracer, 0 for none
    uids: tuple[int, ...]  # real, effective, saved, filesystem
    gids: tuple[int, ...]
    capabilities: int = 0  # that it may use, a bit each


def parse_status(raw: bytes) -> Status | None:
    """Parse status; None if it does not say who owns the process."""
    try:
        uids, gids = _numbers(raw, b"Uid"), _numbers(raw, b"Gid")
        return Status(
            # One that runs with another group's rights, too, is not for its user to look into.
            uid=_owner(uids) if len(set(gids[:3])) == 1 else 0,
            gid=_owner(gids),
            namespace_pids=_numbers(raw, b"NSpid"),
            tracer=next(iter(_numbers(raw, b"TracerPid")), 0),
            uids=uids,
            gids=gids,
            capabilities=int(_words(raw, b"CapPrm") or b"0", 16),
        )
    except ValueError:
        return None


def status_of(pid: int, root: Path | str = "/proc") -> Status | None:
    """The same of status."""
    raw = read_record(f"{root}/{pid}/status", STATUS_BYTES)
    return None if raw is None else parse_status(raw)


def may_be_of(pid: int, uid: int) -> bool:
    """Whether a process is this user's, for all that status tells: it may have ended, or be hidden from us (hidepid=).

    Not where it does not answer.
    """
    said = guarded.ask(pid, [(Operation.RECORD, f"/proc/{pid}/status", STATUS_BYTES)])[0]
    if isinstance(said, int):
        return said in _NOT_THERE
    status = parse_status(said)
    return status is not None and status.uid == uid


def look_behind(pagemap: int, pid: int, root: Path | str = "/proc") -> tuple[bool, Stat | None, Status | None]:
    """Stat and status of a process, and before them whether any has the memory that this descriptor describes.

    -1: none is asked about. Where nobody has that memory nothing is asked of the process.
    """
    if str(root) != "/proc":
        return True, stat_of(pid, root), status_of(pid, root)
    wanted = [(Operation.RECORD, f"/proc/{pid}/{name}", limit) for name, limit in _LOOKED_AT]
    if pagemap >= 0:
        wanted.insert(0, (Operation.IN_USE, "", pagemap))
    *held, raw_stat, raw_status = guarded.ask(pid, wanted)
    if 0 in held:
        return False, None, None
    return True, parse_stat(_bytes(raw_stat) or b""), parse_status(_bytes(raw_status) or b"")


def look_at(pid: int) -> tuple[Stat | None, Status | None, str]:
    """Stat and status of a process, and where its link to its user namespace points, empty as of `link`."""
    wanted = [(Operation.RECORD, f"/proc/{pid}/{name}", limit) for name, limit in _LOOKED_AT]
    raw_stat, raw_status, namespace = map(
        _bytes, guarded.ask(pid, [*wanted, (Operation.LINK, f"/proc/{pid}/ns/user", LINK_BYTES)])
    )
    return parse_stat(raw_stat or b""), parse_status(raw_status or b""), os.fsdecode(namespace or b"")


def groups_of(pid: int, root: Path | str = "/proc") -> tuple[int, ...]:
    """All groups by which a process may have something now; none where there is no such process, or no answer."""
    raw = read_record(f"{root}/{pid}/status", STATUS_BYTES) or b""
    try:
        return (*_numbers(raw, b"Gid"), *_numbers(raw, b"Groups"))
    except ValueError:
        return ()


def looks(pids: Iterable[int], root: Path | str = "/proc") -> Iterator[tuple[int, Stat, Status]]:
    """Stat and status of each of these that says something of itself, in order.

    Several share a child that asks (guarded.ask_each). Both are of one moment: a pid may be used again in the next.
    """
    left = iter(pids)
    while some := list(islice(left, _LOOKS_TOGETHER)):
        wanted = [
            (pid, [(Operation.RECORD, f"{root}/{pid}/{name}", limit) for name, limit in _LOOKED_AT]) for pid in some
        ]
        if str(root) == "/proc":
            said = [[_bytes(answer) for answer in answers] for answers in guarded.ask_each(wanted)]
        else:
            said = [[_read_record(path, limit) for _, path, limit in requests] for _, requests in wanted]
        for pid, (raw_stat, raw_status) in zip(some, said, strict=True):
            stat, status = parse_stat(raw_stat or b""), parse_status(raw_status or b"")
            if stat is not None and status is not None:
                yield pid, stat, status


def kernels_own(root: Path | str = "/proc") -> set[int]:
    """The pids of kernel threads and of programs that the kernel itself has begun. Never waits for long.

    A host has hundreds. Where the list cannot be had (CONFIG_PROC_CHILDREN, a pid namespace) it is empty.
    """
    parent = stat_of(_KTHREADD, root)
    if parent is None or not parent.kernel_thread:
        return set()
    listed = _read(f"{root}/{_KTHREADD}/task/{_KTHREADD}/children", _CHILDREN_BYTES) or b""
    return {_KTHREADD, *map(int, listed.rpartition(b" ")[0].split())}  # the last may be cut


def threads_of(pid: int) -> int:
    """How many threads a process has; 0 where there is no such process. Never waits."""
    try:
        return os.stat(f"/proc/{pid}/task").st_nlink - 2  # a directory for each, beside its own two names
    except OSError:
        return 0


def tasks_of(pid: int) -> list[int]:
    """The ids of its threads on this host; none where there is no such process. Never waits."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def schedstat_of(pid: int, task: int) -> tuple[int, int] | None:
    """Nanoseconds that a thread has run, and has been ready and waited for a CPU. Never waits.

    None where it has ended, or the kernel does not count (CONFIG_SCHED_INFO).
    """
    try:
        ran, queued, _ = (_read_record(f"/proc/{pid}/task/{task}/schedstat", STAT_BYTES) or b"").split()
        return int(ran), int(queued)
    except ValueError:
        return None


def calls_of(pid: int, tasks: list[int]) -> tuple[int, list[bytes | None], tuple[int, ...]]:
    """Unix ns, the system call that each of at most 16 threads is within then, as task/TID/syscall has it, and the
    layout of the program (Stat.layout) that the process has run until behind these.

    None, 0 ns, and no layout: not to be had. One look of many: a process that does not answer is not noted. The child
    that asks reads the clock: on a busy host its turn comes late.
    """
    if not tasks:
        return 0, [], ()
    calls = [(Operation.RECORD, f"/proc/{pid}/task/{task}/syscall", STAT_BYTES) for task in tasks]
    behind = (Operation.RECORD, f"/proc/{pid}/stat", STAT_BYTES)
    clock, *found, raw = map(_bytes, guarded.ask(pid, [(Operation.CLOCK, "", 8), *calls, behind], noted=False))
    stat = parse_stat(raw or b"")
    return int.from_bytes(clock or b"", sys.byteorder), found, stat.layout if stat else ()


def layout_of(pid: int, uid: int) -> tuple[int, ...]:
    """Stat.layout of a process that is this user's, in such a look; empty where it is not, or cannot be had."""
    # Whose it is, behind that: the layout of a program that was another's is none of its next one.
    wanted = [(Operation.RECORD, f"/proc/{pid}/{name}", limit) for name, limit in _LOOKED_AT]
    raw_stat, raw_status = map(_bytes, guarded.ask(pid, wanted, noted=False))
    stat, status = parse_stat(raw_stat or b""), parse_status(raw_status or b"")
    return stat.layout if stat and status and status.uid == uid else ()


def maps_of(pid: int) -> bytes:
    """Its mappings, MAPS_BYTES at most, in such a look; empty where they cannot be had."""
    return _bytes(guarded.ask(pid, [(Operation.READ, f"/proc/{pid}/maps", MAPS_BYTES)], noted=False)[0]) or b""


def switches_of(pid: int, tasks: Sequence[int]) -> dict[int, tuple[int, int]] | None:
    """By thread: how often it has given up its CPU by itself, and been made to. None where the process does not answer.

    A thread that has ended is left out.
    """
    said = _statuses_of(pid, tasks)
    if said is None:
        return None
    found = {}
    for task, raw in said.items():
        with contextlib.suppress(ValueError):
            counts = _words(raw, b"voluntary_ctxt_switches"), _words(raw, b"nonvoluntary_ctxt_switches")
            found[task] = (int(counts[0]), int(counts[1]))
    return found


def name_of(pid: int, task: int) -> str:
    """A thread's name as the kernel has it, printable; empty where it has ended. Never waits."""
    raw = _read_record(f"/proc/{pid}/task/{task}/comm", STAT_BYTES) or b""
    return printable(raw.removesuffix(b"\n"), NAME_CHARACTERS)


def inner_ids(pid: int, tasks: Sequence[int]) -> list[int]:
    """The ids of threads as their own pid namespace has them; the host's where that cannot be had."""
    said = _statuses_of(pid, tasks) or {}
    return [next(reversed(_numbers(said.get(task, b""), b"NSpid")), task) for task in tasks]


def _statuses_of(pid: int, tasks: Sequence[int]) -> dict[int, bytes] | None:
    """By thread: its status, where it has not ended. None where the process does not answer, which is not noted."""
    found: dict[int, bytes] = {}
    for first in range(0, len(tasks), guarded.REQUESTS_MAX):
        some = tasks[first : first + guarded.REQUESTS_MAX]
        wanted = [(Operation.RECORD, f"/proc/{pid}/task/{task}/status", STATUS_BYTES) for task in some]
        said = guarded.ask(pid, wanted, noted=False)
        if -errno.EINPROGRESS in said:
            return None  # others would wait as long
        found.update((task, raw) for task, raw in zip(some, said, strict=True) if isinstance(raw, bytes))
    return found


def surpasses_its_user(pid: int, status: Status, root: Path | str = "/proc", *, namespace: str | None = None) -> bool:
    """It has capabilities that its user lacks (a service's), and so is not for its user to look into: ptrace(2).

    Not in a user namespace that is not ours, of which `user_namespaces` tells. `namespace`: where the link to its own
    points, if that was read.
    """
    if not status.capabilities or status.uid == 0:
        return False
    own = link(f"{root}/{pid}/ns/user") if namespace is None else namespace
    return own in ("", link(f"{root}/self/ns/user"))


def files_of(pid: int, root: Path | str = "/proc") -> int:
    """The owner of a process's files: its user, or root where it is not dumpable. OSError if it has ended."""
    # Not of the directory above it, which is the user's in any case.
    return os.stat(f"{root}/{pid}/stat").st_uid


def _numbers(raw: bytes, name: bytes) -> tuple[int, ...]:
    """Of one line of status; none where there is no such line. ValueError where they are no numbers."""
    return tuple(map(int, _words(raw, name).split()))


def _words(raw: bytes, name: bytes) -> bytes:
    # The kernel escapes newlines in the command name, which is the process's own choice.
    return raw.partition(b"\n" + name + b":")[2].partition(b"\n")[0]


def _owner(ids: tuple[int, ...]) -> int:
    """Real, effective, saved, filesystem id -> whose process it is to us.

    A program that runs with two identities belongs to the more powerful one, as
    for ptrace(2): the user who started a setuid program may not look into it.
    """
    real, effective, saved = ids[:3]
    if real == effective == saved:
        return real
    return 0 if 0 in (real, effective, saved) else effective

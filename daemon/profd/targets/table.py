"""The process table: every process of the host with what /proc says of it.

One pass reads two small files per process, several processes at a time. Facts that change rarely (command line,
environment, libraries, cgroup) are cached per process and read again only when the process has called exec or its
address space has changed, so that an idle `profctl ps` is cheap. Reading the files of another process can wait on that
process's memory lock or its exec, for a while that has a limit (targets/guarded.py) and under no lock of ours; callers
on an event loop use a thread.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from profd.errors import Exhausted, NotFound
from profd.kernel import names
from profd.kernel.pidfd import is_dumpable
from profd.limits import PROC_GPUS_MAX, PROC_LOOK_BYTES_PER_SECOND, PROC_REMEMBERED_BYTES, RATES_USERS_MAX
from profd.model.newest import Newest
from profd.targets import cgroup, environ, procfs, user_namespaces
from profd.targets.guarded import Operation, user_of
from profd.targets.look_rate import LookRate
from profd.targets.mapped import Mapped, parse_maps, torch_version
from profd.targets.process import Process, ProcessId
from profd.targets.remembered import Remembered
from profd.targets.restless import Restless
from profd.targets.starts import starts
from profd.targets.user_namespaces import UserNamespace

COMMAND_CHARACTERS: Final = 4096
# Any library that is looked for is larger than this; smaller changes are the heap's.
_VSIZE_STEP: Final = 1 << 20
# The same where no thread is to be waited for: what decides which source records a process (libcuda, torch, XLA)
# is larger still, and a heap that grows would make every look a long one.
_VSIZE_STEP_RECALLED: Final = 16 << 20
_PYTHON_NAME: Final = re.compile(r"^(?:python|pypy)[\d.]*[a-z]?(?:-config)?$")
_GPU_NODE: Final = re.compile(r"^/dev/nvidia(\d{1,4})$")
_ENDED_STATES: Final = "ZXx"
_TRIES: Final = 2  # to read a process that executes another program meanwhile
_RESTLESS: Final = "not looked at: it executed another program each time that it was"


@dataclass(slots=True)
class _Facts:
    """Facts that are remembered of one process between passes."""

    payer: int  # the uid whose share it takes
    owner: int  # whose process it was when they were read
    image: tuple[str, int]
    bytes: int  # that were read
    vsize: int
    command: str
    executable: str
    environ: dict[str, str]
    job: str
    mapped: Mapped
    python: bool
    torch_version: str | None  # None: its disk did not answer
    gpus: tuple[int, ...]
    user_namespace: UserNamespace | None = None
    private: bool = True  # it was, behind the reading: one that is not any more may be another program

    @property
    def size(self) -> int:
        """Bytes that it takes, about."""
        texts = (self.command, self.executable, self.mapped.torch_library, *self.environ.values())
        return PROC_REMEMBERED_BYTES + sum(map(sys.getsizeof, texts))


class ProcessTable:
    """Processes by pid, from `root` (a /proc, or a made-up tree in tests). Safe to use from threads.

    `labelled` adds what attached processes say of themselves; it is called in whatever thread looks.
    """

    def __init__(self, root: Path = Path("/proc"), labelled: Callable[[Process], Process] | None = None) -> None:
        self._root = root
        self._labelled = labelled or (lambda process: process)
        self._facts: Remembered[_Facts] = Remembered()
        self._users: dict[int, str] = {}
        self._rate = LookRate()
        self._restless = Restless()
        # By user: pids above the user's processes in the last list.
        self._above = Newest[int, set[int]](RATES_USERS_MAX)
        self._lock = threading.Lock()

    def snapshot(self) -> list[Process]:
        """Every process but kernel threads, by pid; those that end meanwhile may be missing.

        Raises Exhausted where none can be looked into.
        """
        pids = list(self._pids())  # before the kernel's: a pid that is one of these later has ended
        kernels = procfs.kernels_own(self._root)
        looks = procfs.looks((pid for pid in pids if pid not in kernels), self._root)
        found = [process for look in looks if (process := self._read(*look, everybody=True)) is not None]
        _require_sight()
        present = {process.id for process in found}
        self._forget(lambda process: process not in present)
        return found

    def owned(self, uid: int, pids: Collection[int] = ()) -> list[Process]:
        """The processes of a user, these pids besides, and what is above any of them, by pid. Raises Exhausted as
        `snapshot`.

        No other process is asked anything: however many there are, and whatever they do, this user does not wait for
        them. Of what is above, and nobody has named, it tells what everybody is told.
        """
        there = set(self._pids())
        named = there.intersection(pids)
        mine = {pid for pid in there if user_of(pid, self._root) == uid} | named
        asked = mine | (self._above.get(uid, set()) & there)  # at once: each level of parents by itself wants a child
        found, above = dict[int, Process](), dict[int, Process]()
        for pid, stat, status in procfs.looks(sorted(asked), self._root):
            if pid not in mine:
                above[pid] = self._told_of(pid, stat, status)
            elif (process := self._read(pid, stat, status, named=pid in named)) is not None:
                found[pid] = process
        parents = {process.ppid for process in found.values()} & there - mine
        reached = set(parents)
        while parents:
            for pid, stat, status in procfs.looks(sorted(parents - asked), self._root):
                above[pid] = self._told_of(pid, stat, status)
            asked |= parents
            parents = {above[pid].ppid for pid in parents if pid in above} & there - mine - reached
            reached |= parents
        found.update((pid, above[pid]) for pid in reached if pid in above)
        _require_sight()
        with self._lock:
            self._above[uid] = reached
        now = {pid: process.id for pid, process in found.items()}
        self._forget(lambda process: process.pid not in there or now.get(process.pid, process) != process)
        return [found[pid] for pid in sorted(found)]

    def _told_of(self, pid: int, stat: procfs.Stat, status: procfs.Status) -> Process:
        """What everybody is told of a process, which is not asked for it."""
        return self._process(
            ProcessId(pid, stat.start_ticks), stat, status, self._by_name(pid, stat, status), private=True
        )

    def _forget(self, gone: Callable[[ProcessId], bool]) -> None:
        """What is remembered of processes that are not there any more."""
        with self._lock:
            for process in [process for process in self._facts.processes() if gone(process)]:
                if not self._stays(process):
                    self._facts.forget(process)

    def get(self, pid: int) -> Process | None:
        """One process, None if there is none of this pid or it is a kernel thread. Raises Exhausted as `snapshot`.

        It is looked at whatever its user's others have cost: how often pids are named is limited in rpc/calls.py.
        """
        look = next(procfs.looks([pid], self._root), None)
        found = self._read(*look, named=True) if look else None
        if found is None:
            _require_sight()
        return found

    def recall(self, pid: int) -> Process | None:
        """The same by what is remembered of it, where that still holds; None where files must be read that may wait.

        For an event loop: takes no lock, and of the process's own it reads what the kernel tells without waiting.
        """
        look = next(procfs.looks([pid], self._root), None)
        if look is None:
            return None
        _, stat, status = look
        identity = ProcessId(pid, stat.start_ticks)
        facts = self._facts.get(identity)
        if facts is None or facts.image != stat.image or abs(stat.vsize - facts.vsize) >= _VSIZE_STEP_RECALLED:
            return None
        if facts.owner != status.uid:
            return None
        if status.uid not in self._users:
            return None
        private = self._private(pid, status)
        return None if facts.private and not private else self._process(identity, stat, status, facts, private)

    def as_its_user_sees(self, process: Process) -> Process:
        """A process, and of a private one its name, whether that is Python's, and what it says of itself where it has
        attached: all else was read by privilege.
        """
        if not process.private:
            return process
        python = _names_python("", process.command.partition(" ")[0].encode())
        public = Process(
            id=process.id,
            ppid=process.ppid,
            uid=process.uid,
            gid=process.gid,
            user=process.user,
            command=f"[{process.name}]",
            name=process.name,
            framework="python" if python else "",
            python=python,
            namespace_pids=process.namespace_pids,
            private=True,
            stopped=process.stopped,
            zombie=process.zombie,
        )
        return self._labelled(public)

    def alive(self, process: ProcessId) -> bool:
        """Is this very process (not another of its pid) still running or stopped? One that does not answer is."""
        return self._lives(process) is not False

    def children(self, process: ProcessId) -> list[Process]:
        """All descendants that are there now, nearest first."""
        by_parent: dict[int, list[Process]] = {}
        for other in self.snapshot():
            by_parent.setdefault(other.ppid, []).append(other)
        found: list[Process] = []
        seen = {process.pid}  # pids may be used again during the pass and form a loop
        level = [process.pid]
        while level:
            below = [child for pid in level for child in by_parent.get(pid, ()) if child.id.pid not in seen]
            seen.update(child.id.pid for child in below)
            found += below
            level = [child.id.pid for child in below]
        return found

    def pidfd(self, process: ProcessId) -> int:
        """A descriptor that names this very process for ever; the caller closes it.

        NotFound if it has ended, Exhausted if this process or the host has no descriptor left, or it does not answer.
        """
        try:
            fd = os.pidfd_open(process.pid)
        except ProcessLookupError as error:
            raise NotFound(f"process {process.pid} has ended ({error.strerror}).") from error
        except OSError as error:
            raise Exhausted(
                f"process {process.pid} cannot be watched ({error.strerror}). Raise profd's limit of open files."
            ) from error
        # The pid may have been used again before it was opened, not after.
        lives = self._lives(process)
        if lives:
            return fd
        os.close(fd)
        if lives is None:
            raise Exhausted(procfs.silence(process.pid))
        raise NotFound(f"process {process.pid} has ended.")

    def _lives(self, process: ProcessId) -> bool | None:
        """None: a process of this pid does, and does not answer whether it is this one."""
        missed = procfs.missed()
        stat = procfs.stat_of(process.pid, self._root)
        if stat is not None:
            return stat.start_ticks == process.start_ticks and stat.state not in _ENDED_STATES
        if procfs.missed() == missed and not procfs.unanswering(process.pid):
            return False
        known = starts.known(process.pid)
        if known or not starts.lives(process.pid):
            return known == process.start_ticks
        return None

    def _pids(self) -> Iterator[int]:
        return iter(sorted(int(name) for name in os.listdir(self._root) if name.isascii() and name.isdigit()))

    def _stays(self, process: ProcessId) -> bool:
        """What is known of it is kept: it does not answer now, or another thread has only just found it."""
        return starts.known(process.pid) == process.start_ticks

    def _read(
        self,
        pid: int,
        stat: procfs.Stat,
        status: procfs.Status,
        *,
        named: bool = False,
        everybody: bool = False,
        tries: int = _TRIES,
    ) -> Process | None:
        """`named`: whatever its user's others have cost. `everybody`: for whoever lists all processes of the host."""
        if stat.kernel_thread:
            return None
        identity = ProcessId(pid, stat.start_ticks)
        # The real one: whoever has begun a setuid program, not root.
        unread = "" if named else self._unread(status.uids[0])
        if everybody and self._restless.left_alone(identity):
            unread = _RESTLESS
        private = self._private(pid, status)
        facts = self._facts.get(identity)
        # It may be another program by now, and these another's facts. So it may between the reading of stat, which says
        # that they hold, and of status, which says whose they are: root's would be told of its user's.
        if facts and (facts.owner != status.uid or (facts.private and not private)):
            facts = None
        ended = stat.state in _ENDED_STATES
        if (unread or ended) and not (facts and _holds(facts, stat)):  # as it was; nothing is asked of it
            shown = facts if facts and _same_stack(facts, stat) else self._by_name(pid, stat, status)
            return self._process(identity, stat, status, shown, private, "" if ended else unread)
        if facts and not _same_stack(facts, stat):
            self._restless.changed(identity)
        missed = procfs.missed()
        with procfs.HeldMap() as held:
            refreshed = self._refreshed(identity, stat, status, facts, held)
            if refreshed is facts:
                return self._process(identity, stat, status, refreshed, private)
            refreshed.private = self._private(pid, status)
            same, now, rights = procfs.look_behind(held.pagemap, pid, self._root)
        # Read by privilege, for whoever has it by `status`: it may have been another program's meanwhile, root's for
        # one, also where its user's own has come back by now.
        if same and now and rights and now.layout == stat.layout and rights.uid == status.uid:
            # Halfway it is not all that there is, also where it has answered what was asked after that.
            if procfs.missed() == missed and not procfs.unanswering(pid):
                with self._lock:
                    self._facts.keep(identity, refreshed)
            return self._process(identity, stat, status, refreshed, refreshed.private)
        self._restless.changed(identity)
        with self._lock:
            self._facts.forget(identity)
        look = next(procfs.looks([pid], self._root), None)
        if look is None or look[1].start_ticks != stat.start_ticks:
            return None
        if tries > 1:
            return self._read(*look, named=named, everybody=everybody, tries=tries - 1)
        return self._process(identity, *look[1:], _nothing_of(*look[1:]), self._private(pid, look[2]), _RESTLESS)

    def _process(
        self,
        identity: ProcessId,
        stat: procfs.Stat,
        status: procfs.Status,
        facts: _Facts,
        private: bool,
        unread: str = "",
    ) -> Process:
        process = Process(
            id=identity,
            ppid=stat.ppid,
            uid=status.uid,
            gid=status.gid,
            user=self._user(status.uid),
            command=facts.command or f"[{stat.image[0]}]",
            name=stat.image[0],
            executable=facts.executable,
            environ=dict(facts.environ),
            rank=environ.rank(facts.environ),
            job=facts.job,
            gpus=facts.gpus,
            framework=facts.mapped.framework or ("python" if facts.python else ""),
            python=facts.python,
            torch_version=facts.torch_version or "",
            cuda=facts.mapped.cuda,
            xla=facts.mapped.jax or facts.mapped.tensorflow,
            namespace_pids=status.namespace_pids,
            private=private,
            user_namespace=_as_it_is_now(facts.user_namespace, identity.pid),
            unread=unread,
            stopped=stat.state in "Tt",
            zombie=stat.state in _ENDED_STATES,
        )
        return self._labelled(process)

    def _unread(self, uid: int) -> str:
        """Why what has changed of this user's processes is not read now; empty where it is."""
        if not self._rate.used_up(uid):
            return ""
        rate = f"{PROC_LOOK_BYTES_PER_SECOND >> 20} MiB a second"
        return f"not looked at since it changed: processes of uid {uid} have more to say than is read of them ({rate})"

    def _by_name(self, pid: int, stat: procfs.Stat, status: procfs.Status) -> _Facts:
        """What everybody is told without asking the process; not to be remembered."""
        facts = _nothing_of(stat, status)
        return replace(
            facts, job=self._job(self._root / str(pid), {}), python=_names_python("", os.fsencode(stat.image[0]))
        )

    def _refreshed(
        self,
        identity: ProcessId,
        stat: procfs.Stat,
        status: procfs.Status,
        facts: _Facts | None,
        held: procfs.HeldMap,
    ) -> _Facts:
        """Facts of a process: the cached ones if nothing can have changed since these were read.

        `held`: as for `_look`.
        """
        if facts and _holds(facts, stat):
            return facts if facts.torch_version is not None else self._with_version(identity, facts)
        missed = procfs.missed()
        found = self._look(identity.pid, stat, status, facts, held)
        self._rate.take(found.payer, found.bytes)
        if procfs.missed() != missed or procfs.unanswering(identity.pid):  # halfway
            return facts if facts and facts.image == stat.image else found
        return found

    def _with_version(self, identity: ProcessId, facts: _Facts) -> _Facts:
        """Facts of a process whose disk did not answer, which is asked again when it may be."""
        version = self._torch_version(identity.pid, facts.owner, facts.mapped.torch_library)
        if version is None:
            return facts
        return replace(facts, torch_version=version)

    def _torch_version(self, pid: int, uid: int, library: str) -> str | None:
        """As `torch_version`; its groups are read for a process with torch alone."""
        gids = procfs.groups_of(pid, self._root) if library else ()
        return torch_version(self._root / str(pid) / "root", library, uid, gids)

    def _look(
        self,
        pid: int,
        stat: procfs.Stat,
        status: procfs.Status,
        before: _Facts | None,
        held: procfs.HeldMap,
    ) -> _Facts:
        """Holds no lock: every one of these may wait for the process, and none for long.

        `held`: gets its memory map before anything is read.
        """
        folder = self._root / str(pid)
        link, command, environment, maps, namespace = (
            part or b""
            for part in procfs.together(
                [
                    (Operation.LINK, f"{folder}/exe", procfs.LINK_BYTES),
                    (Operation.READ, f"{folder}/cmdline", procfs.COMMAND_BYTES),
                    (Operation.READ, f"{folder}/environ", procfs.ENVIRON_BYTES),
                    (Operation.READ, f"{folder}/maps", procfs.MAPS_BYTES),
                    (Operation.LINK, f"{folder}/ns/user", procfs.LINK_BYTES),
                ],
                held,
            )
        )
        executable, variables = os.fsdecode(link), environ.parse_environ(environment)
        # Unreadable maps (not permitted) leave what names tell.
        mapped = parse_maps(maps)
        known = before is not None and before.torch_version
        if before is not None and known and before.mapped.torch_library == mapped.torch_library:
            version = before.torch_version
        else:
            version = self._torch_version(pid, status.uid, mapped.torch_library)
        return _Facts(
            payer=status.uids[0],
            owner=status.uid,
            image=stat.image,
            bytes=len(link) + len(command) + len(environment) + len(maps),
            vsize=stat.vsize,
            command=procfs.printable(command.rstrip(b"\0").replace(b"\0", b" "), COMMAND_CHARACTERS),
            executable=executable,
            environ=variables,
            job=self._job(folder, variables),
            mapped=mapped,
            python=mapped.python or _names_python(executable, command),
            torch_version=version,
            gpus=_gpus(folder, variables) if mapped.cuda else (),
            user_namespace=user_namespaces.of(pid, status.capabilities, os.fsdecode(namespace)),
        )

    @staticmethod
    def _job(folder: Path, variables: dict[str, str]) -> str:
        text = (procfs.read(folder / "cgroup", procfs.CGROUP_BYTES) or b"").decode("utf-8", "replace")
        return (
            cgroup.slurm_job(text)
            or environ.job(variables)
            or cgroup.kubernetes_pod(text)
            or environ.elastic_run(variables)
        )

    def _private(self, pid: int, status: procfs.Status) -> bool:
        try:
            return procfs.files_of(pid, self._root) != status.uid or procfs.surpasses_its_user(pid, status, self._root)
        except OSError:
            return True

    def _user(self, uid: int) -> str:
        name = self._users.get(uid)
        if name is None:
            try:
                name = self._users[uid] = names.user(uid)
            except names.SilentNames:
                return str(uid)  # until it is known
        return name


def _as_it_is_now(namespace: UserNamespace | None, pid: int) -> UserNamespace | None:
    """Facts do not tell whether it is dumpable: a process may forbid its user to look into it at any time."""
    return None if namespace is None else replace(namespace, dumpable=is_dumpable(pid))


def _nothing_of(stat: procfs.Stat, status: procfs.Status) -> _Facts:
    """What is known where nothing could be read; not to be remembered."""
    return _Facts(status.uids[0], status.uid, stat.image, 0, -_VSIZE_STEP, "", "", {}, "", Mapped(), False, "", ())


def _holds(facts: _Facts, stat: procfs.Stat) -> bool:
    """Nothing that is looked for can have changed since they were read."""
    return facts.image == stat.image and abs(stat.vsize - facts.vsize) < _VSIZE_STEP


def _same_stack(facts: _Facts, stat: procfs.Stat) -> bool:
    """It has executed no other program by that, though it may have another name: jobs show in it how far they are."""
    return facts.image[1] == stat.image[1]


def _require_sight() -> None:
    if why := procfs.blind():
        raise Exhausted(why)


def _names_python(executable: str, command: bytes) -> bool:
    """By name: of the executable, else (not ours to read) of the first argument."""
    name = executable.removesuffix(" (deleted)") or command.partition(b"\0")[0].decode("utf-8", "replace")
    return bool(_PYTHON_NAME.match(name.rpartition("/")[2]))


def _gpus(folder: Path, variables: dict[str, str]) -> tuple[int, ...]:
    """GPUs of a process that uses CUDA: device nodes it holds open, narrowed by CUDA_VISIBLE_DEVICES."""
    held: set[int] = set()
    for _, target in procfs.links(folder / "fd", procfs.DESCRIPTORS_LISTED):
        node = _GPU_NODE.match(target)
        if node:
            held.add(int(node.group(1)))
    visible = environ.visible_gpus(variables)
    if visible is None:
        return tuple(sorted(held)[:PROC_GPUS_MAX])
    # The driver may keep the nodes of GPUs open that it then hides.
    both = held.intersection(visible)
    return tuple(sorted(both or held or set(visible))[:PROC_GPUS_MAX])

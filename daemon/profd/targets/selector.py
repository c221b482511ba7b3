"""Which processes a request means, and which of them its caller may have.

Criteria of different kinds are ANDed, of one kind ORed; `children` then adds
descendants. What matches nothing is NotFound and names the criterion; if every
match belongs to somebody else it is Denied, so that a mistyped pid and a
forbidden one are told apart only by processes the caller could see in /proc anyway.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from profd.errors import BadInput, Denied, NotFound
from profd.limits import CAPTURE_TARGETS_MAX, SELECTOR_WORDS_MAX
from profd.targets.process import Process

# Modules that daemons run as processes of their own, and the programs that Python runs for profd and profctl.
_PROFD: Final = re.compile(
    r" -m (?:profd\.(?:workers\.process|targets\.errands\.server|attached\.ingest\.streamer|gpu\.pm_sampler|offline)"
    r"|profclient\.(?:drain|relay|streamer|torch\.builder))(?: |$)"
    r"|^\S+(?: -[A-Za-z]+)* \S*/(?:profctl|profd)(?: |$)"
)


@dataclass(frozen=True, slots=True)
class Selector:
    """Criteria as asked for. `pids` are host pids already."""

    pids: tuple[int, ...] = ()
    users: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    children: bool = False

    @property
    def empty(self) -> bool:
        """Nothing is asked for."""
        return not (self.pids or self.users or self.jobs or self.gpus or self.ranks)

    def describe(self) -> str:
        """The criteria as the user typed them: `--user alice --gpu 0`."""
        kinds = (
            ("pid", self.pids),
            ("user", self.users),
            ("job", self.jobs),
            ("gpu", self.gpus),
            ("rank", self.ranks),
        )
        words = [f"--{name} {value}" for name, values in kinds for value in values]
        return " ".join([*words, "--children"] if self.children else words)


@dataclass(frozen=True, slots=True)
class Selection:
    """The matches, in pid order: processes that the caller may have, processes of others that were named by pid or
    user (as many as a capture may have), pids that name nothing.
    """

    allowed: list[Process]
    forbidden: list[Process]
    missing: tuple[int, ...] = ()


def check_untrusted_selector(selector: Selector) -> None:
    """BadInput if it has more criteria than a capture may have targets, or none."""
    if selector.empty:
        raise BadInput("name at least one process: --pid, --user, --job, --gpu or --rank")
    for name in ("pids", "users", "jobs", "gpus", "ranks"):
        count = len(getattr(selector, name))
        # Ranks of a whole job are named on each of its hosts, which has a few of them.
        most = SELECTOR_WORDS_MAX if name == "ranks" else CAPTURE_TARGETS_MAX
        if count > most:
            raise BadInput(f"{count} {name} were named; a capture has at most {most}")


def select(
    selector: Selector,
    processes: Sequence[Process],
    *,
    uid: int,
    admin: bool,
    own: Collection[int] = (),
) -> Selection:
    """The processes a selector means.

    `own` are the pids of the daemon and its workers: never targets. A pid that
    is named is a match whatever it runs; through any other criterion, and as a
    descendant, only traceable processes are (a user's shells and editors are
    not what `--user` means). A job, a rank and a GPU are what anybody's process may say of itself: where the caller
    has any such process, others' are not meant, and their number keeps no capture from beginning. Raises NotFound or
    Denied.
    """
    candidates = {p.id.pid: p for p in processes if p.id.pid not in own and not p.zombie}
    missing = _missing_pids(selector, candidates)
    matches = {pid: p for pid, p in candidates.items() if _matches(selector, p)}
    if selector.children:
        for process in Families(candidates.values()).below(list(matches)):
            if _is_traceable(process):
                matches[process.id.pid] = process
    found = [matches[pid] for pid in sorted(matches)]
    allowed = [p for p in found if may_profile(p, uid=uid, admin=admin)]
    forbidden = [p for p in found if not may_profile(p, uid=uid, admin=admin)]
    if not found:
        raise NotFound(f"no process matches {selector.describe()}; `profctl ps` lists what can be traced")
    if not allowed:
        raise Denied(_denied(selector, forbidden))
    told = forbidden[:CAPTURE_TARGETS_MAX] if selector.pids or selector.users else []
    return Selection(allowed, told, missing)


def matching(selector: Selector, processes: Iterable[Process]) -> list[Process]:
    """The processes that meet a selector's criteria, whoever asks, without descendants."""
    return [process for process in processes if _matches(selector, process)]


def _is_traceable(process: Process) -> bool:
    return (process.python or process.cuda or bool(process.unread)) and not serves_profd(process)


def serves_profd(process: Process) -> bool:
    """Whether it is some daemon, a helper of one, or profctl, by its command line: ours, another user's, a test's.

    Its owner may have written that line: it decides what a list leaves out, and never what may be done.
    """
    return process.python and bool(_PROFD.search(process.command))


def may_profile(process: Process, *, uid: int, admin: bool) -> bool:
    """A caller may profile what its own uid runs; admins may profile all."""
    return admin or process.uid == uid


class Families:
    """Parents and children in one snapshot."""

    def __init__(self, processes: Iterable[Process]) -> None:
        self._children: dict[int, list[Process]] = {}
        for process in processes:
            self._children.setdefault(process.ppid, []).append(process)

    def below(self, pids: Iterable[int]) -> list[Process]:
        """Every process below the given ones (without them), parents before children."""
        queue = list(pids)
        seen = set(queue)
        found: list[Process] = []
        for pid in queue:
            for child in self._children.get(pid, ()):
                if child.id.pid not in seen:  # a snapshot is not atomic: a reused pid may close a loop
                    seen.add(child.id.pid)
                    queue.append(child.id.pid)
                    found.append(child)
        return found


def _missing_pids(selector: Selector, candidates: dict[int, Process]) -> tuple[int, ...]:
    """Named pids without a process; NotFound if that is all of them."""
    gone = tuple(sorted({pid for pid in selector.pids if pid not in candidates}))
    if gone and len(gone) == len(set(selector.pids)):
        pids = ", ".join(map(str, gone))
        raise NotFound(f"no process has pid {pids} (or it is part of profd); `profctl ps` lists what can be traced")
    return gone


def _matches(selector: Selector, process: Process) -> bool:
    if selector.pids and process.id.pid not in selector.pids:
        return False
    if not selector.pids and not _is_traceable(process):
        return False
    return (
        (not selector.users or process.user in selector.users or str(process.uid) in selector.users)
        and (not selector.jobs or (process.job != "" and process.job in selector.jobs))
        and (not selector.gpus or any(gpu in selector.gpus for gpu in process.gpus))
        and (not selector.ranks or process.rank in selector.ranks)
    )


def _denied(selector: Selector, forbidden: Sequence[Process]) -> str:
    owners = ", ".join(sorted({p.user or str(p.uid) for p in forbidden}))
    return (
        f"{selector.describe()}: you may profile only your own processes, and these belong to {owners}; "
        "ask them, root or a member of profd's admin group"
    )

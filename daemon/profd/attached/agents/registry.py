"""The agents that are connected now, by process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from profd.attached.agents.agent import Agent
from profd.attached.agents.allowance import Allowances
from profd.attached.agents.descriptor import check_untrusted_arena
from profd.attached.agents.link import PorterLink
from profd.attached.agents.porter import Relay
from profd.attached.agents.porters import NotCarried, Porters
from profd.attached.agents.protocol import (
    VERSION,
    Hello,
    Hostile,
    Left,
    PacketKind,
    encode,
    hello_from_untrusted,
    parse_untrusted_packet,
)
from profd.attached.agents.returning import Known, Returning
from profd.errors import BadInput
from profd.fairness.rare_line import RareLine
from profd.fairness.shares import Holder, Refused, Share, Shares
from profd.kernel.freeing import let_go
from profd.kernel.peer import Peer, pidfd_of
from profd.kernel.pidfd import has_ended
from profd.limits import (
    AGENT_HELLO_SECONDS,
    AGENT_LINES_BURST,
    AGENT_PEERS_WAITING_MAX,
    AGENT_TRY_AGAIN_SECONDS,
    AGENTS_MAX,
    AGENTS_PER_UID_MAX,
    AGENTS_RESERVED,
)
from profd.model.wish import Wish
from profd.targets import procfs
from profd.targets.process import Process, ProcessId
from profd.targets.table import ProcessTable
from profd.trust.identify import start_ticks
from profd.trust.namespaces import container

REQUESTS: Final = "request"  # what this daemon takes of agents beside the first build's
ATTACHED: Final = Share(
    *("attached", "attached processes", AGENTS_PER_UID_MAX, AGENTS_MAX, AGENTS_RESERVED, AGENT_TRY_AGAIN_SECONDS)
)

log = logging.getLogger("profd.agents")

Orphan = Callable[[Agent, int, int], None]
"""Takes an agent that came back armed, its epoch and the arena's descriptor (to be closed by the taker)."""


LeftBehind = Callable[[Agent, Left], None]
"""Hears what an agent recorded that nobody took over in time."""


@dataclass(frozen=True, slots=True)
class Identified:
    """The process at the other end, by the kernel and never by its own word."""

    process: ProcessId
    uid: int
    container: int

    @property
    def holder(self) -> Holder:
        """Whose share it has."""
        return _holder(self.uid, self.container)


Disarmed = Callable[[ProcessId, int], None]
"""Hears that nothing of an epoch is armed in a process."""

Greeted = Callable[[ProcessId, int], None]
"""Hears which incarnation of its program a process runs."""


Asked = Callable[[Agent, Wish], None]
"""Hears of a capture that a program asks for; answers with `Agent.tell_granted`."""

Changed = Callable[[ProcessId], None]
"""Hears of a process that has attached, or imported a framework since."""


class AgentRegistry:
    """Agents that have said HELLO, and connections that have not yet. `on_orphan` is whose job armed ones are.

    No connection is read or closed here: porters do that, which nobody waits for.
    """

    def __init__(
        self,
        only_uid: int | None = None,
        *,
        change_identity: bool = False,
        share: Share = ATTACHED,
        porters: Porters | None = None,
    ) -> None:
        """`only_uid`: serve nobody else. `porters`: whoever has made them closes them, after this.

        Else this has its own, as nobody's uid if they `change_identity`.
        """
        self.porters = porters or Porters(change_identity=change_identity)
        self._owns_porters = porters is None
        self.on_orphan: Orphan = _let_go
        self.on_left: LeftBehind = lambda agent, left: None
        self.on_disarmed: Disarmed = lambda process, epoch: None
        self.on_greeted: Greeted = lambda process, incarnation: None
        self.on_changed: Changed = lambda process: None
        self.on_asked: Asked = _not_yet
        self.counts: Counter[str] = Counter()  # refused, hostile, by what happened
        self._only_uid = only_uid
        self._agents: dict[ProcessId, Agent] = {}
        self._pidfds: dict[ProcessId, int] = {}
        self._holders: dict[ProcessId, Holder] = {}
        self._share = Shares(share)  # connections
        self._allowances = Allowances()
        self._greetings: set[_Greeting] = set()
        self._cut_off = RareLine(log, "an agent was cut off", burst=AGENT_LINES_BURST)
        self._closed = False
        self._identifying: dict[socket.socket, int] = {}  # connections that nobody carries yet, and their uids
        self._peers = ThreadPoolExecutor(2, "profd-peers")
        self._memory = ThreadPoolExecutor(1, "profd-attached")
        self.returning = Returning(self._memory)

    def get(self, process: ProcessId) -> Agent | None:
        """The agent of this process, if one is connected."""
        return self._agents.get(process)

    def all(self) -> Collection[Agent]:
        """Every registered agent."""
        return self._agents.values()

    async def remember(self, file: Path, table: ProcessTable) -> None:
        """Await those that were attached when the file was last written, and keep it."""

        def attached() -> list[Known]:
            told = ((agent.process, agent.hello) for agent in self._agents.values())
            return [Known(of.pid, of.start_ticks, hello.rank, hello.job, hello.pod) for of, hello in told]

        await self.returning.open(file, table.alive, attached)

    def labelled(self, process: Process) -> Process:
        """The process with the rank and the job that its agent names, and whether it still imports PyTorch.

        Safe to call from any thread.
        """
        agent = self._agents.get(process.id)
        if agent is None:
            known = self.returning.of(process.id)
            return process if known is None else _named(process, known, importing=process.importing)
        importing = process.framework == "torch" and "torch" not in agent.hello.framework
        return _named(process, agent.hello, importing=importing)

    def accept(self, connection: socket.socket, peer: Peer) -> None:
        """A new connection; it is the registry's from here on. A thread asks for its identity: that may wait."""
        if self._closed or [*self._identifying.values()].count(peer.uid) >= AGENT_PEERS_WAITING_MAX:
            self._refuse(connection, f"{AGENT_PEERS_WAITING_MAX} of your processes wait to be identified: try again")
            return
        try:
            pidfd = pidfd_of(connection, peer)
        except OSError as error:
            self._refuse(connection, _unseen(error))
            return
        self._identifying[connection] = peer.uid
        future = asyncio.get_running_loop().run_in_executor(self._peers, _identify, peer, pidfd)
        future.add_done_callback(lambda done: self._identified(connection, pidfd, done))

    def refuse_silently(self, connection: socket.socket) -> None:
        """Close a new connection without a word."""
        self.counts["refused"] += 1
        self.porters.droppers.drop(connection)

    def _identified(self, connection: socket.socket, pidfd: int, done: asyncio.Future[Identified]) -> None:
        if self._identifying.pop(connection, None) is None or done.cancelled():  # closed meanwhile
            os.close(pidfd)
            return
        try:
            peer = done.result()
            relay = self.porters.relay(peer.uid, connection, peer.container)
        except NotCarried as error:
            os.close(pidfd)
            self._refuse(connection, str(error))
        except OSError as error:
            os.close(pidfd)
            self._refuse(connection, _unseen(error))
        else:
            self._admit(relay, peer, pidfd)

    def _admit(self, relay: Relay, peer: Identified, pidfd: int) -> None:
        try:
            self._require_served(peer)
            self._share.hold(peer.holder)
        except (Refused, BadInput) as error:
            os.close(pidfd)
            self._tell(relay, str(error))
            return
        self._greetings.add(_Greeting(self, relay, peer, pidfd))

    def close(self) -> None:
        """Close every connection; armed agents find another daemon, or disarm themselves."""
        if not self._closed:
            self.returning.close()  # those of now are whom the next one awaits
        self._closed = True
        self._memory.shutdown(wait=False)
        self._peers.shutdown(wait=False, cancel_futures=True)
        while self._identifying:
            self.porters.droppers.drop(self._identifying.popitem()[0])
        for greeting in list(self._greetings):
            greeting.close()
        for agent in list(self._agents.values()):
            agent.close()
            self.forget(agent, "")
        if self._owns_porters:
            self.porters.close()

    def _require_served(self, peer: Identified) -> None:
        if self._only_uid is not None and peer.uid != self._only_uid:
            raise BadInput(f"this profd serves uid {self._only_uid} only (it was started with --user)")

    def _refuse(self, connection: socket.socket, why: str) -> None:
        """A connection that nobody has taken over; without a word it comes again soon."""
        with contextlib.suppress(OSError):
            connection.setblocking(False)
            if why:
                connection.send(encode(PacketKind.REFUSED, why=why), socket.MSG_NOSIGNAL)
        self.refuse_silently(connection)

    def _tell(self, relay: Relay, why: str) -> None:
        self.counts["refused"] += 1
        with contextlib.suppress(OSError):
            relay.socket.send(encode(PacketKind.REFUSED, why=why), socket.MSG_NOSIGNAL)
        relay.close()

    # --- what greetings bring ---

    def _greeted(self, greeting: _Greeting, hello: Hello, fd: int | None) -> None:
        """HELLO has come. Takes `fd` in any case."""
        with contextlib.ExitStack() as unused:
            if fd is not None:
                unused.callback(let_go, fd)
            if fd is not None and hello.armed:
                check_untrusted_arena(fd)
            if self._has_come_back(greeting, hello):
                return
            why = self._cannot_greet(greeting.peer, hello)
            if why:
                self.counts["refused"] += 1
                greeting.link.send(encode(PacketKind.REFUSED, why=why))
                greeting.close()
                return
            agent = self._register(greeting, hello)
            greeting.link.send(encode(PacketKind.WELCOME, version=VERSION, can=REQUESTS))
            if hello.armed and fd is not None:
                unused.pop_all()
                self.on_orphan(agent, hello.armed, fd)
            elif hello.left is not None:
                self.on_left(agent, hello.left)

    def _has_come_back(self, greeting: _Greeting, hello: Hello) -> bool:
        """Whether it is one that lost its porter while it recorded. Its arena is known."""
        known = self._agents.get(greeting.peer.process)
        if known is None or not known.comes_back(hello, greeting.link):
            return False
        self._greetings.discard(greeting)
        os.close(greeting.hand_over())
        self._share.give_back(greeting.peer.holder)  # it has kept its place
        greeting.link.send(encode(PacketKind.WELCOME, version=VERSION, can=REQUESTS))
        known.tell_again()
        return True

    def _cannot_greet(self, peer: Identified, hello: Hello) -> str:
        if not hello.versions[0] <= VERSION <= hello.versions[1]:
            low, high = hello.versions
            return f"this daemon speaks version {VERSION} of the agent protocol, you {low} to {high}: upgrade one of us"
        known = self._agents.get(peer.process)
        if known is None:
            return ""
        if known.armed and not known.hung_up():
            return f"pid {peer.process.pid} is attached already, and is being recorded"
        known.close()
        self.forget(known, "")
        return ""

    def _register(self, greeting: _Greeting, hello: Hello) -> Agent:
        peer = greeting.peer
        agent = Agent(peer.process, peer.uid, hello, greeting.link, self)
        self.on_greeted(peer.process, hello.incarnation)
        self.on_changed(peer.process)
        greeting.link.receiver = agent
        self._greetings.discard(greeting)
        self._agents[peer.process] = agent
        self._holders[peer.process] = peer.holder
        self.returning.came(peer.process)
        pidfd = self._pidfds[peer.process] = greeting.hand_over()
        # A child that keeps the socket hides the end of its parent: no EOF comes.
        asyncio.get_running_loop().add_reader(pidfd, _ended, agent, pidfd)
        return agent

    # --- what agents say (`agent.Owner`) ---

    def disarmed(self, process: ProcessId, epoch: int) -> None:
        """Nothing of this epoch is armed in the process."""
        self.on_disarmed(process, epoch)

    def asked(self, agent: Agent, wish: Wish) -> None:
        """A program wants to be recorded."""
        self.on_asked(agent, wish)

    def changed(self, process: ProcessId) -> None:
        """Facts that are remembered of the process may be wrong."""
        self.on_changed(process)

    def forget(self, agent: Agent, why: str) -> None:
        """Its connection is over."""
        if self._agents.get(agent.process) is not agent:
            return
        del self._agents[agent.process]
        self.returning.changed()
        pidfd = self._pidfds.pop(agent.process)
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
        self._share.give_back(self._holders.pop(agent.process))
        if why:
            self.counts["hostile"] += 1
            self._cut_off.tell(agent.uid, pid=agent.process.pid, why=why)

    def _left(self, greeting: _Greeting, why: str) -> None:
        """A greeting that led to nothing."""
        self._greetings.discard(greeting)
        self._share.give_back(greeting.peer.holder)
        if why:
            self.counts["hostile"] += 1
            self._cut_off.tell(greeting.peer.uid, pid=greeting.peer.process.pid, why=why)


class _Greeting:
    """A connection until its HELLO."""

    def __init__(self, registry: AgentRegistry, relay: Relay, peer: Identified, pidfd: int) -> None:
        self.peer = peer
        self._registry = registry
        self._pidfd = pidfd
        self._timer = asyncio.get_running_loop().call_later(AGENT_HELLO_SECONDS, self._too_late)
        self.link = PorterLink(relay, self, registry._allowances.of(peer.holder))

    def received(self, raw: bytes, fd: int | None) -> None:
        """The first packet must be HELLO. Raises Hostile."""
        try:
            packet = parse_untrusted_packet(raw)
            if packet.kind != PacketKind.HELLO:
                raise Hostile("the first packet is no HELLO")
            hello = hello_from_untrusted(packet)
        except Hostile:
            if fd is not None:
                let_go(fd)
            raise
        self._registry._greeted(self, hello, fd)  # the two are one unit

    def ended(self, why: str) -> None:
        """Gone before it said anything."""
        self.close(why)

    def lost(self) -> None:
        """It comes again."""
        self.close()

    def hand_over(self) -> int:
        """It is an agent from now on: the pidfd is the caller's."""
        self._timer.cancel()
        pidfd, self._pidfd = self._pidfd, -1
        return pidfd

    def close(self, why: str = "") -> None:
        """Idempotent until it was handed over; then it does nothing."""
        if self._pidfd < 0:
            return
        self._timer.cancel()
        self.link.close()
        os.close(self._pidfd)
        self._pidfd = -1
        self._registry._left(self, why)

    def _too_late(self) -> None:
        self.close(f"no HELLO within {AGENT_HELLO_SECONDS:g} s")


def _not_yet(agent: Agent, wish: Wish) -> None:
    agent.tell_granted(wish.number, why="profd is starting: ask again in a moment")


def _identify(peer: Peer, pidfd: int) -> Identified:
    """The process whose pidfd we have. OSError if it cannot be seen, or has ended."""
    start = start_ticks(peer.pid)
    if not start and procfs.unanswering(peer.pid):
        raise OSError(0, "it does not answer")
    found = Identified(ProcessId(peer.pid, start), peer.uid, container(peer.pid) if start else 0)
    if not start or has_ended(pidfd):  # what was read may be of another process
        raise OSError(0, "it has ended")
    return found


def _unseen(error: OSError) -> str:
    return f"this daemon cannot see your process ({error.strerror}): run it with hostPID"


def _named(process: Process, said: Hello | Known, *, importing: bool) -> Process:
    """With the labels that its agent has told."""
    rank = process.rank if said.rank is None else said.rank
    job = said.job or process.job or said.pod
    if (rank, job, importing) == (process.rank, process.job, process.importing):
        return process
    return replace(process, rank=rank, job=job, importing=importing)


def _holder(uid: int, container: int) -> Holder:
    """Groups are not asked: it is root's, the daemon's, or a user's."""
    return Holder(uid, uid in (0, os.geteuid()), container)


def _ended(agent: Agent, pidfd: int) -> None:
    asyncio.get_running_loop().remove_reader(pidfd)  # readable from now on
    agent.process_ended()


def _let_go(agent: Agent, epoch: int, fd: int) -> None:
    """Nobody knows this epoch: it ends here."""
    let_go(fd)
    agent.take_up(epoch)
    agent.stop()
    agent.release()

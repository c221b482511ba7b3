"""Whether jobs hang in a collective, for `profctl where`: agents are asked before and after their stacks are read.

What a flight recorder remembers is taken only from processes that have not begun or ended a collective between the two
looks, and only where one of the job waits in one: its own lock stops the next collective meanwhile, for milliseconds
that are not bounded (docs/decisions/0040-hangs.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from profd.answers.hangs.look import ProcessLook, State, Verdict
from profd.answers.hangs.matching import judge
from profd.answers.hangs.memory import Numbers, numbers_from_untrusted
from profd.answers.hangs.recalled import JUDGE_HANG, Recalled, verdict_of
from profd.attached.agents.agent import NotRecalled
from profd.attached.agents.registry import AgentRegistry
from profd.attached.places import collective_line, hangs_with_gil, own_line
from profd.errors import BadInput, ProfdError
from profd.fairness.few import Few
from profd.fairness.room import Room
from profd.fairness.shares import Holder
from profd.fairness.threads import in_thread
from profd.limits import (
    JUDGE_SECONDS,
    JUDGED_AT_ONCE,
    RECALL_SECONDS,
    RECALLED_BYTES_MAX,
    RECALLS_AT_ONCE,
    RECALLS_AT_ONCE_PER_UID,
)
from profd.sources.pyspy.stack import ThreadStack
from profd.targets.process import Process, ProcessId

RunJob = Callable[[str, dict[str, Any], Sequence[int]], Awaitable[dict[str, Any]]]
"""As `WorkerPool.run`."""
APART_SECONDS: Final = 0.5  # the two looks, at least


@dataclass(frozen=True, slots=True)
class Before:
    """The first look. `why`: of those that did not say."""

    at: float  # of the monotonic clock
    numbers: Mapping[ProcessId, Mapping[str, Numbers]]
    why: Mapping[ProcessId, str]


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """What is said of one job. `pids`: of its processes that were asked."""

    job: str
    pids: tuple[int, ...]
    verdict: Verdict


class Collectives:
    """Asks agents what their flight recorders remember, for a user each time; `uid` is the user's.

    The daemon itself reads how far groups are. What is remembered goes to a worker unread: it is long, and a target
    may write anything there.
    """

    def __init__(self, agents: AgentRegistry, run_job: RunJob) -> None:
        self._agents = agents
        self._run_job = run_job
        self._asked = Few(RECALLS_AT_ONCE_PER_UID, RECALLS_AT_ONCE)
        self._judged = Few(1, JUDGED_AT_ONCE)

    async def before(self, uid: int, processes: Sequence[Process]) -> Before | None:
        """The first look; None where no process can say anything of collectives."""
        able = [process for process in processes if self._can(process)]
        if not able:
            return None
        at = time.monotonic()
        numbers, why = await self._numbers(uid, able)
        return Before(at, numbers, why) if any(numbers.values()) or why else None

    async def after(
        self, uid: int, before: Before, processes: Sequence[Process], stacks: Mapping[ProcessId, Sequence[ThreadStack]]
    ) -> list[JobVerdict]:
        """What is said of each job, once its stacks have been read; a job without collectives is left out."""
        await asyncio.sleep(max(0.0, before.at + APART_SECONDS - time.monotonic()))
        able = [process for process in processes if process.id in before.numbers]
        numbers, why = await self._numbers(uid, able)
        jobs: dict[str, list[tuple[Process, ProcessLook]]] = {}
        for process in processes:
            if self._can(process):  # in a thread: stacks may be long
                look = await in_thread(
                    Holder.of_user(uid), _look, process, before, numbers, why, stacks.get(process.id, ())
                )
                jobs.setdefault(process.job, []).append((process, look))
        answers = await asyncio.gather(*(self._judge(uid, job, of_job) for job, of_job in jobs.items()))
        return [answer for answer in answers if answer is not None]

    async def _judge(self, uid: int, job: str, processes: Sequence[tuple[Process, ProcessLook]]) -> JobVerdict | None:
        processes = sorted(processes, key=lambda one: (one[1].rank is None, one[1].rank or 0, one[1].pid))
        looks = [look for _, look in processes]
        if not any(look.after or look.why for look in looks):
            return None
        if any(look.stands for look in looks):
            async with self._judged.place(uid):
                verdict = await self._judge_hang(uid, processes)
        else:
            verdict = judge(looks, time.time_ns())
        return JobVerdict(job, tuple(look.pid for look in looks), verdict)

    async def _judge_hang(self, uid: int, processes: Sequence[tuple[Process, ProcessLook]]) -> Verdict:
        room = Room(RECALLED_BYTES_MAX)
        asked = await asyncio.gather(*(self._with_dump(uid, process, look, room) for process, look in processes))
        worlds = [agent.hello.world for process, _ in processes if (agent := self._agents.get(process.id))]
        world = max((world for world in worlds if world), default=None)
        looks, dumps = [look for look, _ in asked], [dump for _, dump in asked]
        try:
            with contextlib.closing(Recalled()) as recalled:
                args = await in_thread(Holder.of_user(uid), recalled.write, looks, dumps, time.time_ns(), world)
                async with asyncio.timeout(JUDGE_SECONDS):
                    found = await self._run_job(JUDGE_HANG, args, [recalled.fd])
            return verdict_of(found.get("verdict"))
        except TimeoutError:
            why = f"no worker has answered within {JUDGE_SECONDS:g} s"
        except (ProfdError, ValueError, OSError) as error:
            why = str(error)
        silent = "Ranks stand still in a collective; what their flight recorders remember was not read."
        return Verdict(State.UNKNOWN, (silent,), notes=(why,))

    async def _with_dump(
        self, uid: int, process: Process, look: ProcessLook, room: Room
    ) -> tuple[ProcessLook, bytes | None]:
        """What it remembers, unread; or why not, in the look."""
        if not look.still:
            return look, None
        said = await self._ask(uid, process, entries=True)
        if isinstance(said, bytes) and not room.take(len(said)):
            said = f"processes of its job remember more than {RECALLED_BYTES_MAX >> 20} MiB"
        return (replace(look, why=said), None) if isinstance(said, str) else (look, said)

    async def _numbers(
        self, uid: int, processes: Sequence[Process]
    ) -> tuple[dict[ProcessId, Mapping[str, Numbers]], dict[ProcessId, str]]:
        numbers, why = dict[ProcessId, Mapping[str, Numbers]](), dict[ProcessId, str]()

        async def ask(process: Process) -> None:
            said = await self._ask(uid, process, entries=False)
            try:
                if isinstance(said, bytes):
                    numbers[process.id] = await in_thread(Holder.of_user(uid), numbers_from_untrusted, said)
                else:
                    why[process.id] = said
            except BadInput as error:
                why[process.id] = str(error)

        await asyncio.gather(*map(ask, processes))
        return numbers, why

    async def _ask(self, uid: int, process: Process, *, entries: bool) -> bytes | str:
        """What it answers; or why it does not, as a sentence."""
        agent = self._agents.get(process.id)
        if agent is None:
            return "it has gone away"
        try:
            async with self._asked.place(uid):
                return await agent.recall(RECALL_SECONDS, entries=entries)
        except NotRecalled as error:
            return str(error)

    def _can(self, process: Process) -> bool:
        agent = self._agents.get(process.id)
        return agent is not None and "recall" in agent.hello.can and "torch" in agent.hello.framework


def _look(
    process: Process,
    before: Before,
    numbers: Mapping[ProcessId, Mapping[str, Numbers]],
    why: Mapping[ProcessId, str],
    stacks: Sequence[ThreadStack],
) -> ProcessLook:
    return ProcessLook(
        process.id.pid,
        process.rank,
        before.numbers.get(process.id),
        numbers.get(process.id),
        at=own_line(stacks),
        calls_at=collective_line(stacks),
        holds_gil=hangs_with_gil(stacks),
        why=before.why.get(process.id, "") or why.get(process.id, ""),
    )

"""Whether jobs hang in a collective, for `profctl where`: agents are asked before and after their stacks are read.

What a flight recorder remembers is taken only from processes that have not begun or ended a collective between the two
looks, and only where one of the job waits in one: its own lock stops the next collective meanwhile, for milliseconds
that are not bounded (docs/decisions/0040-hangs.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from profd.answers.hangs.look import Look, Verdict
from profd.answers.hangs.matching import judge
from profd.answers.hangs.memory import Memory, Numbers, memory_from_untrusted
from profd.attached.agents.agent import NotRecalled
from profd.attached.agents.registry import AgentRegistry
from profd.attached.places import collective_line, hangs_with_gil, own_line
from profd.errors import BadInput
from profd.limits import RECALL_SECONDS, RECALLS_AT_ONCE
from profd.sources.pyspy.stack import ThreadStack
from profd.targets.process import Process, ProcessId

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
    """Asks agents what their flight recorders remember."""

    def __init__(self, agents: AgentRegistry) -> None:
        self._agents = agents
        self._at_once = asyncio.Semaphore(RECALLS_AT_ONCE)

    async def before(self, processes: Sequence[Process]) -> Before | None:
        """The first look; None where no process can say anything of collectives."""
        able = [process for process in processes if self._can(process)]
        if not able:
            return None
        at = time.monotonic()
        numbers, why = await self._numbers(able)
        return Before(at, numbers, why) if any(numbers.values()) or why else None

    async def after(
        self, before: Before, processes: Sequence[Process], stacks: Mapping[ProcessId, Sequence[ThreadStack]]
    ) -> list[JobVerdict]:
        """What is said of each job, once its stacks have been read; a job without collectives is left out."""
        await asyncio.sleep(max(0.0, before.at + APART_SECONDS - time.monotonic()))
        able = [process for process in processes if process.id in before.numbers]
        numbers, why = await self._numbers(able)
        jobs: dict[str, list[tuple[Process, Look]]] = {}
        for process in processes:
            if self._can(process):
                look = _look(process, before, numbers, why, stacks.get(process.id, ()))
                jobs.setdefault(process.job, []).append((process, look))
        answers = await asyncio.gather(*(self._judge(job, of_job) for job, of_job in jobs.items()))
        return [answer for answer in answers if answer is not None]

    async def _judge(self, job: str, processes: Sequence[tuple[Process, Look]]) -> JobVerdict | None:
        looks = [look for _, look in processes]
        if not any(look.after or look.why for look in looks):
            return None
        if any(look.stands for look in looks):
            looks = await asyncio.gather(*(self._with_memory(process, look) for process, look in processes))
        worlds = [agent.hello.world for process, _ in processes if (agent := self._agents.get(process.id))]
        world = max((world for world in worlds if world), default=None)
        looks.sort(key=lambda look: (look.rank is None, look.rank or 0, look.pid))
        verdict = await asyncio.to_thread(judge, looks, time.time_ns(), world)
        return JobVerdict(job, tuple(look.pid for look in looks), verdict)

    async def _with_memory(self, process: Process, look: Look) -> Look:
        if not look.still:
            return look
        said = await self._ask(process, entries=True)
        if isinstance(said, str):
            return replace(look, why=said)
        # A third look: one that has gone on meanwhile does not stand still.
        return replace(look, memory=said, after=said.numbers)

    async def _numbers(
        self, processes: Sequence[Process]
    ) -> tuple[dict[ProcessId, Mapping[str, Numbers]], dict[ProcessId, str]]:
        answers = await asyncio.gather(*(self._ask(process, entries=False) for process in processes))
        said = dict(zip((process.id for process in processes), answers, strict=True))
        numbers = {process: answer.numbers for process, answer in said.items() if isinstance(answer, Memory)}
        return numbers, {process: answer for process, answer in said.items() if isinstance(answer, str)}

    async def _ask(self, process: Process, *, entries: bool) -> Memory | str:
        """Or why not, as a sentence."""
        agent = self._agents.get(process.id)
        if agent is None:
            return "it has gone away"
        try:
            async with self._at_once:
                dump = await agent.recall(RECALL_SECONDS, entries=entries)
                return await asyncio.to_thread(memory_from_untrusted, dump)
        except (NotRecalled, BadInput) as error:
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
) -> Look:
    return Look(
        process.id.pid,
        process.rank,
        before.numbers.get(process.id),
        numbers.get(process.id),
        at=own_line(stacks),
        calls_at=collective_line(stacks),
        holds_gil=hangs_with_gil(stacks),
        why=before.why.get(process.id, "") or why.get(process.id, ""),
    )

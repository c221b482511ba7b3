"""What torch's flight recorder remembers of collectives, asked at the end of a window.

Asking costs the process: torch copies all that it remembers under the lock that each collective takes, and then writes
it as JSON. That is done for small recorders alone, while the job goes on (docs/decisions/0050-sequences.md).
"""

from __future__ import annotations

import asyncio
from typing import Final

from profd.attached.agents.agent import Agent, Arm, NotRecalled
from profd.attached.agents.protocol import Hello
from profd.attached.sdk import planning
from profd.fairness.few import Few
from profd.fairness.to_the_end import to_the_end
from profd.limits import (
    RECALL_AT_END_BYTES_MAX,
    RECALL_AT_END_COLLECTIVES_MAX,
    RECALL_AT_END_SECONDS,
    RECALL_SECONDS,
    RECALLS_AT_ONCE,
    RECALLS_AT_ONCE_PER_UID,
)
from profd.model.capture import RawFile
from profd.model.remembered import REMEMBERED
from profd.sources.base import Session

_NAME: Final = "collectives.json"


class Recalls:
    """Asks agents, few at once."""

    def __init__(self) -> None:
        self._few = Few(RECALLS_AT_ONCE_PER_UID, RECALLS_AT_ONCE)

    async def take(self, agent: Agent, session: Session, arm: Arm) -> RawFile | str | None:
        """The answer, unread, in the journal; or why there is none; None where the agent is not to be asked."""
        if arm.stopped is None or not _may_be_asked(agent.hello):
            return None
        try:
            async with asyncio.timeout(RECALL_AT_END_SECONDS), self._few.place(agent.uid):
                said = await agent.recall(RECALL_SECONDS, entries=True, wanted=RECALL_AT_END_BYTES_MAX)
            path = session.directory / _NAME
            await to_the_end(asyncio.to_thread(path.write_bytes, said))
        except TimeoutError:
            return _without("others of its user were asked meanwhile")
        except (NotRecalled, OSError) as error:
            return _without(str(error))
        return RawFile(str(path), REMEMBERED)


def _may_be_asked(hello: Hello) -> bool:
    """It has one that is known to be small, and operators beside which sequence numbers are of use."""
    small = hello.kept is not None and 0 < hello.kept <= RECALL_AT_END_COLLECTIVES_MAX
    return small and "recall" in hello.can and planning.has_torch(hello) and hello.world != 1


def _without(why: str) -> str:
    return f"groups and sequence numbers of collectives are not recorded: {why}"

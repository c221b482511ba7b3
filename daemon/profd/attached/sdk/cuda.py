"""The source `cuda`: programs of any language that CUDA's driver has loaded libprofd_cupti.so into (native/gpu)."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final

from profd.attached.sdk import planning
from profd.attached.sdk.source import SdkSource, records_ranges
from profd.model.capture import Reason
from profd.model.traits import Traits
from profd.sources.base import Offer
from profd.sources.declaration import Declaration, Refuses, without_server
from profd.targets.process import Process

_INJECT: Final = "start it with: profctl run --cuda -- COMMAND"

DECLARATION: Final = replace(
    planning.DECLARATION,
    name="cuda",
    rank=40,
    common=replace(
        planning.DECLARATION.common,
        iterations=Refuses("cuda does not see the program's steps; give --duration"),
    ),
    server=without_server("cuda"),
    traits=Traits(),
)


class CudaSource(SdkSource):
    """CUDA's calls, kernels and copies, and nothing of the program itself.

    The collector has an agent of its own and speaks as attached processes do. Where profclient is attached it
    records CUDA's events beside everything else: that is source `sdk`.
    """

    declaration: ClassVar[Declaration] = DECLARATION

    async def open(self) -> None:
        """Nothing: what comes back from before is taken over by `sdk`, whoever recorded it."""

    def offer(self, process: Process) -> Offer:
        """Whether the collector is in it and free."""
        agent = self._registry.get(process.id)
        if agent is None:
            if process.cuda and (why := self._registry.returning.why(process.id)):
                return Offer(False, why, "ask again then", Reason.TARGET_SILENT, busy=True)
            return Offer(False, "CUDA's collector is not in it", _INJECT, concerns=process.cuda)
        if records_ranges(agent):
            return Offer(False, "its agent is profclient's", "its CUDA events come with --source sdk", concerns=False)
        return self._free(process, agent)

"""The source `cuda`: programs of any language that CUDA's driver has loaded libprofd_cupti.so into (native/gpu)."""

from __future__ import annotations

from typing import ClassVar, Final

from profd.capture.model import Options
from profd.sources.base import Offer, Plan
from profd.sources.sdk.source import SdkSource, records_ranges
from profd.targets.process import Process

_INJECT: Final = "start it with: profctl run --cuda -- COMMAND"


class CudaSource(SdkSource):
    """CUDA's calls, kernels and copies, and nothing of the program itself.

    The collector has an agent of its own and speaks as attached processes do. Where profclient is attached it
    records CUDA's events beside everything else: that is source `sdk`.
    """

    name: ClassVar[str] = "cuda"
    can_guard: ClassVar[bool] = False

    async def open(self) -> None:
        """Nothing: what comes back from before is taken over by `sdk`, whoever recorded it."""

    def offer(self, process: Process) -> Offer:
        """Whether the collector is in it and free."""
        agent = self._registry.get(process.id)
        if agent is None:
            return Offer(False, "CUDA's collector is not in it", _INJECT, concerns=process.cuda)
        if records_ranges(agent):
            return Offer(False, "its agent is profclient's", "its CUDA events come with --source sdk", concerns=False)
        return self._free(process, agent)

    def plan(self, process: Process, options: Options) -> Plan:
        """As for any agent; what only frameworks or Python have is not honoured."""
        if options.max_overhead is not None:
            return Plan(False, "cuda cannot keep to --max-overhead: it does not see the program's steps")
        return super().plan(process, options)

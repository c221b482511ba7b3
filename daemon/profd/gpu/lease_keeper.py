"""The daemon's leases, with the kernel's word on which processes have ended."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping

from profd.gpu.holders import Holder, foreign
from profd.gpu.leases import GpuId, Held, Lease, Leases, LeaseStatistics, Subject
from profd.limits import GPU_FOREIGN_HOLDERS_MAX
from profd.targets.process import ProcessId

Ended = Callable[[ProcessId], Awaitable[None]]
"""Returns when the process has ended (profd.capture.death)."""


class LeaseKeeper:
    """Grants, and frees what the dead held. On the event loop's thread; `close` at the end."""

    def __init__(self, ended: Ended, leases: Leases | None = None) -> None:
        self._leases = Leases(time.monotonic) if leases is None else leases
        self._ended = ended
        self._watches: dict[ProcessId, asyncio.Task[None]] = {}
        self._foreign: OrderedDict[ProcessId, Holder] = OrderedDict()

    def of(self, subject: Subject) -> Lease | None:
        """Its holder, if there is one."""
        return self._leases.get(subject)

    def held(self, subject: Subject) -> Held | None:
        """Why nobody else may have it now; None: it is free."""
        lease = self.of(subject)
        return None if lease is None else Held(lease)

    def leases(self) -> list[Lease]:
        """All that are not free."""
        return list(self._leases)

    def take(self, subject: Subject, holder: Holder, epoch: int = 0) -> Lease:
        """A lease that the caller ends. Raises Held, whose sentence names who has it. `epoch`: of an earlier daemon."""
        lease = self._leases.grant(subject, holder, epoch)
        if isinstance(subject, ProcessId):
            self._watch(subject)
        return lease

    @contextlib.contextmanager
    def hold(self, subject: Subject, holder: Holder) -> Iterator[Lease]:
        """`take`, ended whatever happens. It stays taken until the target is known to be disarmed: `clear`."""
        lease = self.take(subject, holder)
        try:
            yield lease
        finally:
            self.end(lease)

    def arm(self, lease: Lease, image: int = 0) -> bool:
        """Before anything is armed under it. False: the lease is over, and nothing may be."""
        return self._leases.arm(lease, image)

    def greeted(self, process: ProcessId, image: int) -> None:
        """The process has this program image now: what an earlier one had armed went with it."""
        lease = self._leases.get(process)
        if lease is not None and lease.image not in (0, image):
            self.clear(process)

    def renew(self, lease: Lease) -> bool:
        """The target has been heard of. False: the lease is over."""
        return self._leases.renew(lease)

    def end(self, lease: Lease) -> None:
        """Its holder is done."""
        self._leases.end(lease)
        self._forget_watch(lease.subject)

    def clear(self, subject: Subject, epoch: int | None = None) -> None:
        """Nothing of this epoch (None: of any) is armed there any more."""
        self._leases.clear(subject, epoch)
        self._forget_watch(subject)

    def met_foreign(self, process: ProcessId, name_untrusted: str) -> Holder:
        """CUPTI said that a tool of this name (may be empty) holds the process."""
        holder = foreign(name_untrusted)
        self._leases.refused_by(holder)
        self._foreign.pop(process, None)
        while len(self._foreign) >= GPU_FOREIGN_HOLDERS_MAX:
            self._foreign.popitem(last=False)
        self._foreign[process] = holder
        return holder

    def armed(self, process: ProcessId) -> None:
        """CUPTI could be had in it: no other tool is there any more."""
        self._foreign.pop(process, None)

    @property
    def foreign_holders(self) -> Mapping[ProcessId, Holder]:
        """Other tools, as they were met last."""
        return dict(self._foreign)

    def statistics(self) -> LeaseStatistics:
        """For metrics."""
        return self._leases.statistics()

    async def close(self) -> None:
        """Watch nothing any more."""
        watches = list(self._watches.values())
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)

    def _watch(self, process: ProcessId) -> None:
        task = asyncio.get_running_loop().create_task(self._until_ended(process))
        self._watches[process] = task

    async def _until_ended(self, process: ProcessId) -> None:
        await self._ended(process)
        self._watches.pop(process, None)
        self._foreign.pop(process, None)
        self._leases.clear(process)

    def _forget_watch(self, subject: Subject) -> None:
        if isinstance(subject, GpuId) or self._leases.get(subject) is not None:
            return
        watch = self._watches.pop(subject, None)
        if watch is not None:
            watch.cancel()

"""What each row does in the tree, in links and in flows: one byte per row.

The bits are those of `native/engine/roles.h`.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profd import _engine
from profd.events import NO_CODE, NO_END, DeviceType, Dictionary, EventTable, Kind

Array = npt.NDArray[Any]

NESTS: Final = 1
FRAME: Final = 2
TIMED: Final = 4
OP: Final = 8
LAUNCH: Final = 16
DEVICE: Final = 32
MUST_LAUNCH: Final = 64
MUST_LINK: Final = 128

# On a host thread. Overhead and `Trace` rows span what they are about, counters have no length.
_ON_HOST: Final[dict[Kind, int]] = {
    Kind.OTHER: NESTS | FRAME | TIMED,
    Kind.CPU_OP: NESTS | FRAME | TIMED | OP,
    Kind.USER_ANNOTATION: NESTS | FRAME | TIMED,
    Kind.PYTHON_FUNCTION: NESTS | FRAME | TIMED,
    Kind.INSTANT: NESTS,
    Kind.RUNTIME: NESTS | FRAME | TIMED | LAUNCH,
    Kind.DRIVER: NESTS | FRAME | TIMED | LAUNCH,
    Kind.KERNEL: TIMED | DEVICE | MUST_LINK,
    Kind.MEMCPY: TIMED | DEVICE | MUST_LINK,
    Kind.MEMSET: TIMED | DEVICE | MUST_LINK,
    Kind.SYNC: NESTS | FRAME | TIMED,
    Kind.OVERHEAD: TIMED,
    Kind.GPU_USER_ANNOTATION: TIMED,
    Kind.MEMORY: NESTS,
    Kind.COUNTER: 0,
    Kind.SAMPLE: NESTS | FRAME | TIMED,
    Kind.TRACE: TIMED,
}
# On a device nothing nests by time: rows of one stream may overlap.
_ON_DEVICE: Final[dict[Kind, int]] = {
    kind: (role & (TIMED | MUST_LINK))
    | (0 if kind in (Kind.GPU_USER_ANNOTATION, Kind.COUNTER, Kind.TRACE, Kind.OVERHEAD) else DEVICE)
    for kind, role in _ON_HOST.items()
} | {Kind.MEMORY: NESTS}  # memory of a device is allocated by a call on the host thread that the record is of
OVERLAPPING_PHASES: Final = np.isin(np.arange(256), np.frombuffer(b"bneSTpF", dtype=np.uint8))  # async ones
_HOST_MAX: Final = max(DeviceType.CPU, DeviceType.OTHER)  # of the device types: what is above ran on a device
# What a device row must come of; cudaLaunchHostFunc runs on the host.
_LAUNCH_NAME: Final = re.compile(r"(?!.*HostFunc)(?:cuda|cu|hip|musa|mtia)\w*Launch")


def nests_on_host(kind: int) -> bool:
    """Whether rows of a kind are children of what is open on their host thread, unless they are asynchronous."""
    return bool(_ON_HOST.get(Kind(kind), 0) & NESTS) if kind in _ON_HOST else False


def _table(roles: dict[Kind, int]) -> Array:
    table = np.zeros(256, dtype=np.uint8)
    for kind, role in roles.items():
        table[kind] = role
    return table


_TABLES: Final = np.concatenate((_table(_ON_HOST), _table(_ON_DEVICE)))


class Roles:
    """Roles of the rows of a trace, segment by segment. Remembers which names are launches."""

    def __init__(self, names: Dictionary) -> None:
        self._names = names
        self._launches = np.zeros(0, dtype=np.bool_)

    def of(self, table: EventTable) -> tuple[Array, int]:
        """(uint8 per row, all of them or-ed)"""
        role, seen = _engine.roles(
            table.column("kind"),
            table.column("device_type"),
            table.columns.get("phase"),
            table.columns.get("is_async"),
            tables=_TABLES,
            overlapping_phases=OVERLAPPING_PHASES.view(np.uint8),
            host_max=_HOST_MAX,
            overlapping=TIMED,  # async events overlap freely, also on one track
        )
        if seen & LAUNCH:
            calls = np.flatnonzero(role & LAUNCH)
            launching = calls[self._launches_device(table.column("name")[calls])]
            role[launching] |= MUST_LAUNCH
            seen |= MUST_LAUNCH if len(launching) else 0
        return role, seen

    def _launches_device(self, codes: Array) -> Array:
        known = len(self._launches)
        if known < len(self._names):
            new = [_LAUNCH_NAME.match(name) is not None for name in self._names.values[known:]]
            self._launches = np.append(self._launches, new)
        if len(self._launches) == 0:
            return np.zeros(len(codes), dtype=np.bool_)
        found: Array = self._launches[codes] & (codes != NO_CODE)
        return found


def lacks_correlation(table: EventTable) -> Array:
    """Rows whose correlation id is absent or 0, which names nothing."""
    correlation = table.column("correlation")
    absent: Array = (correlation == NO_END) | (correlation == 0)
    return absent

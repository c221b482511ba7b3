"""Roles of each row in torch's tables, as bits: those that its kind, its device, its name and its phase all allow."""

from __future__ import annotations

from typing import Final

import numpy as np

from profd import _engine
from profd.events import DeviceType, EventTable, Kind
from profd.events.table import Array
from profd.query import rules

# The first five are those of native/engine/calls.cpp.
SHOWN: Final = 1  # it has a row of its own
CALL: Final = 2  # it ran on a CPU thread; overhead did not
NESTS: Final = 4  # a call that other calls enclose and are enclosed by: not asynchronous
WORK: Final = 8  # it ran on a device
MARK: Final = 16  # a point in time, shown as a call of no time
OP: Final = 32  # a call that device work belongs to which was launched within it
OWNER: Final = 64  # a call that device work may name as its own, by external id
COSTS: Final = 128  # device work that counts as time of the call it belongs to

_ALL: Final = 255 & ~MARK


def _table(entries: int, usual: int, others: dict[int, int]) -> Array:
    table = np.full(entries, usual, dtype=np.uint8)
    for value, roles in others.items():
        table[value] = roles
    return table


_OF_KIND: Final = _table(
    256,
    _ALL & ~(OP | OWNER),
    {
        **dict.fromkeys(rules.NOT_WORK, 0),
        Kind.OVERHEAD: SHOWN | WORK | COSTS,
        Kind.CPU_OP: _ALL,
        Kind.USER_ANNOTATION: _ALL & ~OP,
        # The shadow of an annotation spans its kernels: adding it would count them twice.
        Kind.GPU_USER_ANNOTATION: SHOWN | CALL | NESTS | WORK,
    },
)
_OF_DEVICE: Final = _table(
    256,
    SHOWN | WORK | COSTS,
    {
        DeviceType.CPU: SHOWN | CALL | NESTS | OP | OWNER,
        DeviceType.MTIA: SHOWN | WORK,  # torch's ops do not take up its work
    },
)
_ASYNC: Final = _ALL & ~(NESTS | OP | OWNER)
_OF_PHASE: Final = _table(256, _ALL, dict.fromkeys(rules.ASYNC_PHASES, _ASYNC))
_OF_ASYNC: Final = np.array([_ALL, *[_ASYNC] * 255], dtype=np.uint8)


def roles_of(table: EventTable) -> Array:
    """The roles of each row (uint8). Marks are found by whoever knows the times."""
    of_name = [0 if name in rules.UTILITY_OPS else _ALL for name in rules.names_of(table)]
    tables = {
        "kind": _OF_KIND,
        "device_type": _OF_DEVICE,
        "name": np.array([*of_name, _ALL], dtype=np.uint8),  # the last answers for NO_CODE
        "phase": _OF_PHASE,
        "is_async": _OF_ASYNC,
    }
    always = ("kind", "device_type")
    roles = _engine.allowed(
        [
            (np.ascontiguousarray(table.column(column)), allowed)
            for column, allowed in tables.items()
            if column in always or column in table.columns
        ]
    )
    if "end_thread" in table.columns:
        roles[rules.ends_elsewhere(table)] &= _ASYNC
    return roles


def having(role: Array, wanted: int) -> Array:
    """Bytes that are 0 where a row has none of the roles wanted."""
    among: Array = role & np.uint8(wanted)
    return among

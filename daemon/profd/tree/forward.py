"""Backward ops and the engine's rows around them: which forward thread each names.

Autograd's engine wraps each backward function in a row of its own,
`autograd::engine::evaluate_function: …`, which names no forward op; the function
inside does. Both belong to it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profd import _engine
from profd.events import NO_CODE, NO_END, NO_ROW, NO_SCOPE, EventTable, Kind, Scope, Tracks

Array = npt.NDArray[Any]

EVALUATE_PREFIX: Final = "autograd::engine::evaluate_function: "


def engine_rows(table: EventTable) -> Array:
    """Which rows are the engine's around a function."""
    known = table.dictionaries.get("name")
    fits = [name.startswith(EVALUATE_PREFIX) for name in known.values] if known is not None else []
    of_name = np.array([*fits, False], dtype=np.uint8)
    return _engine.allowed([(np.ascontiguousarray(table.column("name")), of_name)]).view(np.bool_)


def _callees(table: EventTable) -> Array:
    """For each name code that of the function which such an evaluate_function row calls, or NO_CODE."""
    known = table.dictionaries.get("name")
    names = known.values if known is not None else []
    codes = {name: code for code, name in enumerate(names)}
    skip = len(EVALUATE_PREFIX)
    called = [codes.get(name[skip:], NO_CODE) if name.startswith(EVALUATE_PREFIX) else NO_CODE for name in names]
    return np.array([*called, NO_CODE], dtype=np.int64)


def engine_calls(table: EventTable, engine: Array) -> tuple[Array, Array]:
    """(evaluate_function row, the next op of its thread) where that is the function it calls.

    A recorded scope says whether an op is a function; without one the name must be the one that the engine's row has.
    """
    thread, name, ops = table.column("thread"), table.column("name"), table.column("kind") == Kind.CPU_OP
    outer = np.flatnonzero(engine & ops)
    inner = _engine.next_on_thread(np.ascontiguousarray(thread), ops.view(np.uint8), outer)
    outer, inner = outer[inner != NO_ROW], inner[inner != NO_ROW]
    if not len(outer):
        return outer, inner
    named = (_callees(table)[name[outer]] == name[inner]) & (name[inner] != NO_CODE)
    scope = table.column("scope")[inner]
    fits = np.where(scope == NO_SCOPE, named, scope == Scope.BACKWARD_FUNCTION)
    return outer[fits], inner[fits]


def plumbed(table: EventTable, calls: tuple[Array, Array]) -> tuple[Array, Array]:
    """(sequence, fwd_thread), where the engine's rows have those of the functions they call; see `engine_calls`."""
    sequence, fwd_thread = table.column("sequence"), table.column("fwd_thread")
    outer, inner = calls
    if len(outer):
        sequence, fwd_thread = sequence.copy(), fwd_thread.copy()
        sequence[outer], fwd_thread[outer] = sequence[inner], fwd_thread[inner]
    return sequence, fwd_thread


def forward_tracks(table: EventTable, tracks: Tracks) -> Array | None:
    """Of each backward op the track of the thread whose id it names as its forward thread, else NO_ROW.

    None: all of them ran on that thread themselves, or there are none. Kineto's own numbers, which are no ids, name no
    track.
    """
    named = _named_tracks(table, table.column("fwd_thread"), tracks) if "fwd_thread" in table.columns else None
    if named is None:
        return None
    outer, inner = engine_calls(table, engine_rows(table))
    named[outer] = named[inner]
    return named


def _named_tracks(table: EventTable, fwd_thread: Array, tracks: Tracks) -> Array | None:
    rows = np.flatnonzero((fwd_thread != NO_END) & (fwd_thread != 0))
    process = np.ascontiguousarray(table.column("process")[rows], dtype=np.int64)
    group, first = _engine.group_rows([process, np.ascontiguousarray(fwd_thread[rows])])
    ids = {(track.get("process"), track.get("id")): number for number, track in enumerate(tracks.threads)}
    keys = zip(process[first].tolist(), fwd_thread[rows[first]].tolist(), strict=True)
    meant = np.array([ids.get(key, NO_ROW) for key in keys], dtype=np.int32)[group]
    # The engine's rows are on the threads of the functions they call.
    if not ((meant != NO_ROW) & (meant != table.column("thread")[rows])).any():
        return None
    forward = np.full(len(table), NO_ROW, dtype=np.int32)
    forward[rows] = meant
    return forward

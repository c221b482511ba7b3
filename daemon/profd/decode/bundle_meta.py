"""The allowed contents of a bundle's `meta.json`: tracks, and the origin of the trace."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from profd import limits
from profd.decode.shared import Numbers, SharedTracks
from profd.errors import BadTrace
from profd.events import Tracks
from profd.model.capture import Cost, Loss, Phase
from profd.model.remembered import CALLS_KEPT, Remembered, RememberedCall
from profd.model.resident import LOOKS_KEPT, Resident, ResidentLook
from profd.model.run_times import (
    IN_GIL,
    IN_LOCK,
    MOMENTS_KEPT,
    OFF,
    RUNS,
    RUNS_KEPT,
    THREADS_KEPT,
    UNSEEN,
    RunTimes,
    ThreadTimes,
)
from profd.model.text import printable_text
from profd.segments.meta import TraceMeta

_LABEL: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LOSSES_MAX: Final = 64  # kinds of losses: each list of traces has them
_TEXTS_MAX: Final = 1000  # of a list, such as the warnings
_TEXT_CHARACTERS: Final = 4096
_NAME_MAX: Final = limits.THREAD_NAME_CHARACTERS_MAX
_STATES: Final = {RUNS, IN_GIL, IN_LOCK, OFF, UNSEEN}
_TRACK_TEXTS: Final = ("name", "labels")


def provenance_of(meta: TraceMeta) -> TraceMeta:
    """A trace's word about its origin, cleaned: claims of the bundle's maker. Only ORIGIN_FIELDS and losses."""
    check_json([meta.options, meta.top_level])
    cost = meta.cost
    return TraceMeta(
        source=meta.source if _LABEL.fullmatch(meta.source) else "import",
        title=_text(meta.title),
        host=_text(meta.host),
        job=_text(meta.job),
        pid=_within(meta.pid, 0, (1 << 31) - 1),
        rank=_within(meta.rank, 0, (1 << 31) - 1),
        window_start_ns=_within(meta.window_start_ns, 0, (1 << 63) - 1),
        window_end_ns=_within(meta.window_end_ns, 0, (1 << 63) - 1),
        clock_error_ns=_within(meta.clock_error_ns, 0, (1 << 63) - 1),
        options=meta.options,
        not_honoured=_texts(meta.not_honoured),
        cost=Cost(_text(cost.how), cost.step_ratio, cost.seconds, _text(cost.detail)),
        waterfall=[Phase(_text(phase.name), _count(phase.duration_ns)) for phase in meta.waterfall[:_TEXTS_MAX]],
        versions={_text(name): _text(version) for name, version in [*meta.versions.items()][:_TEXTS_MAX]},
        gpu={_label(name): _fact(value) for name, value in [*meta.gpu.items()][:_TEXTS_MAX]},
        lost=[Loss(_label(loss.stage), _label(loss.reason), _count(loss.count)) for loss in meta.lost[:_LOSSES_MAX]],
        anomalies={_label(name): _count(count) for name, count in [*meta.anomalies.items()][:_TEXTS_MAX]},
        warnings=_texts(meta.warnings),
        truncated=_text(meta.truncated),
        traits=meta.traits,
        run_times=_run_times(meta.run_times),
        resident=_resident(meta.resident),
        remembered=_remembered(meta.remembered),
    )


def _resident(resident: Resident) -> Resident:
    known = [
        ResidentLook(_count(each.at_ns), _count(each.total_bytes), _count(each.own_bytes))
        for each in resident.looks[:LOOKS_KEPT]
    ]
    age = None if resident.age_ns is None else _count(resident.age_ns)
    return Resident(sorted(known, key=lambda each: each.at_ns), age)


def _remembered(remembered: Remembered) -> Remembered:
    known = [
        RememberedCall(
            _text(each.group)[:_NAME_MAX],
            _count(each.sequence),
            _text(each.operation)[:_NAME_MAX],
            None if each.elements is None else _count(each.elements),
            _count(each.created_ns),
        )
        for each in remembered.calls[:CALLS_KEPT]
    ]
    return Remembered(sorted(known, key=lambda each: each.created_ns))


def _states(states: str, looks: int) -> str:
    return states if len(states) == looks and set(states) <= _STATES else UNSEEN * looks


def _run_times(times: RunTimes) -> RunTimes:
    looked = sorted(_count(each) for each in times.looked_ns[:MOMENTS_KEPT])
    threads = [
        ThreadTimes(
            id=_count(each.id),
            name=_text(each.name)[:_NAME_MAX],
            lasted_ns=_count(each.lasted_ns),
            ran_ns=_count(each.ran_ns),
            queued_ns=_count(each.queued_ns),
            looks=_count(each.looks),
            in_gil=None if each.in_gil is None else _count(each.in_gil),
            in_lock=_count(each.in_lock),
            states=_states(each.states, len(looked)),
        )
        for each in times.threads[:THREADS_KEPT]
    ]
    return RunTimes(
        lasted_ns=_count(times.lasted_ns),
        cores=_count(times.cores),
        threads=threads,
        others=_count(times.others),
        others_ran_ns=_count(times.others_ran_ns),
        looked_ns=looked,
        idle=_count(times.idle),
        idle_ids=[(_count(first), _count(last)) for first, last in times.idle_ids[:RUNS_KEPT]],
        unseen=_count(times.unseen),
        names={_text(tid): _text(name)[:_NAME_MAX] for tid, name in [*times.names.items()][:_TEXTS_MAX]},
    )


def _fact(value: int | str) -> int | str:
    return value if isinstance(value, int) else _text(value)


def check_json(value: Any) -> None:
    """BadTrace for what other readers of JSON would not read."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise _wrong(f"what it says of itself is no JSON ({error})") from error


def checked_tracks(tracks: Tracks, into: Tracks) -> tuple[Numbers, Numbers]:
    """Add the tracks of a bundle to those of a trace: its (process, thread) numbers in the trace's numbering."""
    if len(tracks.processes) + len(tracks.threads) > limits.TRACKS_MAX:
        raise _wrong(f"it has more than {limits.TRACKS_MAX} tracks")
    shared, processes, threads = SharedTracks(into), Numbers(), Numbers()
    for track in tracks.processes:
        number = shared.process(_id(track))
        processes.extend([number])
        _describe(track, into.processes[number])
        if records := track.get("metadata"):
            into.processes[number].setdefault("metadata", _records(records))
    for track in tracks.threads:
        owner = track.get("process")
        if not isinstance(owner, int) or not 0 <= owner < len(processes):
            raise _wrong("a thread has no process")
        number = shared.thread(processes[owner], _id(track))
        threads.extend([number])
        _describe(track, into.threads[number])
        node = track.get("node")
        if isinstance(node, int) and not isinstance(node, bool) and 0 <= node < 1 << 63:
            into.threads[number].setdefault("node", node)
    return processes, threads


def _id(track: dict[str, Any]) -> Any:
    found = track.get("id")
    if found is not None and (not isinstance(found, str | int | float) or isinstance(found, bool)):
        raise _wrong("a track has an id that is none")
    return found


def _describe(track: dict[str, Any], into: dict[str, Any]) -> None:
    for key in _TRACK_TEXTS:
        if isinstance(track.get(key), str):
            into.setdefault(key, track[key])
    order = track.get("sort_index")
    if isinstance(order, int | float) and not isinstance(order, bool):
        into.setdefault("sort_index", order)


def _records(records: Any) -> list[dict[str, Any]]:
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise _wrong("its metadata are no records")
    check_json(records)
    return records[: limits.METADATA_RECORDS_MAX]


def _text(text: str) -> str:
    return printable_text(text, _TEXT_CHARACTERS)


def _texts(texts: list[str]) -> list[str]:
    return [_text(text) for text in texts[:_TEXTS_MAX]]


def _label(text: str) -> str:
    return text if _LABEL.fullmatch(text) else "other"


def _count(number: int) -> int:
    return min(max(0, number), (1 << 62) - 1)


def _within(number: int | None, low: int, high: int) -> int | None:
    return number if number is not None and low <= number <= high else None


def _wrong(what: str) -> BadTrace:
    return BadTrace(f"the bundle is no trace of profd: {what}; have it exported again")

"""Rows of traces that were no XSpace, as XProf expects such events: names of lines and stats."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from profd.events import NO_END, DeviceType, EventTable, Kind, Tracks
from profd.export.xspace_plane import StatType

HOST_PLANE: Final = "/host:CPU"
_INTEGERS: Final = ("external", "sequence", "fwd_thread", "bytes", "ptr", "total_allocated", "total_reserved", "weight")
_TEXTS: Final = ("stack", "module", "inputs")
COLUMNS: Final = ("correlation", "stream", *_INTEGERS, *_TEXTS)
_STEP: Final = re.compile(r"ProfilerStep#(\d{1,18})$")
VENDORS: Final[dict[int, str]] = {DeviceType.CUDA: "Nvidia", DeviceType.HIP: "AMD"}
_STREAM_TYPES: Final = {Kind.KERNEL: "Compute", Kind.MEMCPY: "Memcpy", Kind.MEMSET: "Memset"}
_NO_KEYS: Final[tuple[Any, ...]] = ()
Given = Mapping[int, list[tuple[tuple[str, str], Any]]]


def thread_titles(tracks: Tracks) -> list[str]:
    """The name of a line for each thread."""
    several = len({thread["process"] for thread in tracks.threads}) > 1
    titles = []
    for thread in tracks.threads:
        name = str(thread.get("name") or f"thread {thread['id']}")
        process = tracks.processes[thread["process"]]
        titles.append(f"{process.get('name') or process['id']}/{name}" if several else name)
    return titles


def stream_types(kinds: Iterable[int]) -> list[str]:
    """The words that XProf writes into the name of a stream."""
    return [_STREAM_TYPES[Kind(kind)] for kind in kinds if Kind(kind) in _STREAM_TYPES]


def stats_of(
    table: EventTable, name_of: Callable[[int], str], given: Given
) -> Callable[[int], list[tuple[StatType, Any]]]:
    """A function from a row to its stats: arguments, what typed columns hold, and what XProf looks for."""
    kinds = table.column("kind").tolist()
    correlation = table.column("correlation").tolist()
    integers = {name: table.columns[name].tolist() for name in _INTEGERS if name in table.columns}
    texts = {name: table.columns[name].tolist() for name in _TEXTS if name in table.columns}

    def of(row: int) -> list[tuple[StatType, Any]]:
        found: list[tuple[StatType, Any]] = []
        arguments = given.get(row, _NO_KEYS)
        for (key, kind), value in arguments:
            type_ = {"int": "int64", "float": "double"}.get(kind, "str")
            found.append(((key, type_), value))
        if correlation[row] > 0:
            found.append((("correlation_id", "uint64"), correlation[row]))
        for name, values in integers.items():
            if values[row] != NO_END:
                found.append(((name, "int64"), values[row]))
        for text, codes in texts.items():
            if codes[row] >= 0:
                found.append(((text, "str"), table.dictionaries[text].values[codes[row]]))
        if kinds[row] == Kind.KERNEL:
            found.append((("kernel_details", "str"), _kernel_details(arguments)))
        elif kinds[row] == Kind.MEMCPY and "bytes" in integers and integers["bytes"][row] != NO_END:
            found.append((("memcpy_details", "str"), f"size:{integers['bytes'][row]}"))
        elif kinds[row] == Kind.USER_ANNOTATION and (step := _STEP.match(name_of(row))):
            found += [(("_r", "int64"), 1), (("step_num", "int64"), int(step[1]))]
        return found

    return of


def _kernel_details(arguments: Iterable[tuple[tuple[str, str], Any]]) -> str:
    known = {key: value for (key, _), value in arguments}
    parts = [f"regs:{known.get('registers per thread', 0)}", f"shm:{known.get('shared memory', 0)}"]
    parts += [f"{key}:{extent}" for key in ("grid", "block") if (extent := _extent(known.get(key)))]
    return " ".join(parts)


def _extent(text: Any) -> str:
    """[160, 1, 1] -> 160,1,1; empty if it is nothing of the kind."""
    try:
        values = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return ""
    if not isinstance(values, list) or not all(isinstance(value, int) for value in values):
        return ""
    return ",".join(map(str, values[:3]))

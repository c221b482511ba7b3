"""Chrome traces for tests: decoding text, rows as plain dicts, and the slow obvious decoder beside it."""

from __future__ import annotations

import io
import json
from collections import Counter
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from profd.decode.batch import Batch
from profd.decode.chrome import ChromeDecoder
from profd.events import NO_END, Kind

CANONICAL = {
    "external": "External id",
    "correlation": "correlation",
    "stream": "stream",
    "device": "device",
    "context": "context",
    "sequence": "Sequence number",
    "fwd_thread": "Fwd thread id",
    "ptr": "Addr",
    "total_allocated": "Total Allocated",
    "total_reserved": "Total Reserved",
}
ALIASES = {
    "external id": "external",
    "External Id": "external",
    "Correlation": "correlation",
    "correlation id": "correlation",
    "Correlation id": "correlation",
    "Stream": "stream",
    "Device Id": "device",
    "Context": "context",
}
_MEMBERS = {"ph", "name", "cat", "pid", "tid", "ts", "args"}

Row = dict[str, Any]


def decode(text: bytes | str, slice_bytes: int = 1 << 20) -> tuple[list[Batch], ChromeDecoder]:
    """All batches of a text, and the decoder with its findings."""
    data = text.encode() if isinstance(text, str) else text
    decoder = ChromeDecoder(io.BytesIO(data), slice_bytes=slice_bytes)
    return list(decoder.batches()), decoder


def rows(text: bytes | str, slice_bytes: int = 1 << 20) -> tuple[list[Row], ChromeDecoder]:
    """Every row as a dict: columns that are present, ids and strings resolved, arguments under "args"."""
    batches, decoder = decode(text, slice_bytes)
    return [row for batch in batches for row in _rows(batch, decoder)], decoder


def flows(text: bytes | str, slice_bytes: int = 1 << 20) -> list[Row]:
    """Every flow record as a dict."""
    batches, decoder = decode(text, slice_bytes)
    return [flow for batch in batches for flow in _flows(batch, decoder)]


def _place(decoder: ChromeDecoder, thread: int) -> tuple[Any, Any]:
    track = decoder.tracks.threads[thread]
    return decoder.tracks.processes[track["process"]]["id"], track["id"]


def _rows(batch: Batch, decoder: ChromeDecoder) -> list[Row]:
    table, out = batch.events, []
    for at in range(len(table)):
        row: Row = {name: values[at].item() for name, values in table.columns.items()}
        for name in ("name", "cat", "stack", "module", "inputs"):
            code = row.get(name, -1)
            row[name] = decoder.dictionaries[name].values[code] if code >= 0 else None
        row["pid"], row["tid"] = _place(decoder, row["thread"])
        row["phase"] = chr(row["phase"])
        row["end"] = None if row["end"] == NO_END else row["end"]
        row["args"] = {}
        out.append(row)
    for (key, kind), arg in table.args.items():
        for at, value in zip(arg.rows.tolist(), arg.values.tolist(), strict=True):
            assert (key, kind) not in out[at]["args"]
            text = arg.dictionary.values[value] if arg.dictionary is not None else value
            out[at]["args"][key, kind] = text
    return out


def _flows(batch: Batch, decoder: ChromeDecoder) -> list[Row]:
    found = batch.flows
    if found is None:
        return []
    names, cats, ids = (decoder.dictionaries[name].values for name in ("name", "cat", "flow_id"))
    return [
        {
            "phase": chr(found.phase[at]),
            "id": json.loads(ids[found.id[at]]) if found.id[at] >= 0 else None,
            "name": names[found.name[at]] if found.name[at] >= 0 else None,
            "cat": cats[found.category[at]] if found.category[at] >= 0 else None,
            "enclosing": bool(found.enclosing[at]),
            "place": _place(decoder, int(found.thread[at])),
            "time": int(found.time[at]),
        }
        for at in range(len(found.id))
    ]


def arguments(row: Row) -> dict[str, Any]:
    """The arguments of a row under their own keys, typed columns and inputs included."""
    out: dict[str, Any] = {}
    for (key, kind), value in row["args"].items():
        if key == "@extra":
            out |= json.loads(value)
        elif not key.startswith("@") or key.startswith("@@"):
            name = key[1:] if key.startswith("@@") else key
            assert name not in out, f"{name} came twice"
            out[name] = json.loads(value) if kind == "json" else value
    for column, key in {**CANONICAL, "bytes": "Bytes" if row["kind"] == Kind.MEMORY else "bytes"}.items():
        value = row.get(column, NO_END)
        aliased = (
            key in out or any(ALIASES.get(name) == column for name in out) or (column == "bytes" and "Bytes" in out)
        )
        if value != NO_END and not aliased:
            out[key] = value
    for column, key in (("stack", "Call stack"), ("module", "Module Hierarchy")):
        if row[column] is not None:
            out[key] = row[column]
    return out | (json.loads(row["inputs"]) if row["inputs"] is not None else {})


def members(row: Row) -> dict[str, Any]:
    """What stood beside the arguments and has no column."""
    return {
        key[1:]: json.loads(value) if kind == "json" else value
        for (key, kind), value in row["args"].items()
        if key.startswith("@") and not key.startswith("@@") and key != "@extra"
    }


class Twin:
    """Decodes a list of Chrome events the obvious way: one Python dict at a time, times as Decimals."""

    def __init__(self, base_ns: int = 0) -> None:
        self.base_ns = base_ns
        self.rows: list[Row] = []
        self.flows: list[Row] = []
        self.lost: Counter[str] = Counter()
        self._stacks: dict[Any, list[Row]] = {}

    def decode(self, events: list[Any]) -> Twin:
        """Everything; rows in the order in which they are complete."""
        for event in events:
            self._event(event)
        threads = [key for key in self._stacks if key[0] == "B"]
        for key in sorted(threads, key=lambda key: key[1]):
            self.rows += self._stacks[key]
        rest = [row for key, stack in self._stacks.items() if key[0] == "b" for row in stack]
        self.rows += sorted(rest, key=lambda row: row["start"])
        return self

    def _time(self, *numbers: Any) -> int | None:
        total = Decimal(0)
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int | Decimal):
                return None
            total += Decimal(number) * 1000
        ns = int(total.quantize(Decimal(1), ROUND_HALF_EVEN)) + self.base_ns
        return ns if -(1 << 63) < ns < 1 << 63 else None

    def _event(self, event: Any) -> None:
        if not isinstance(event, dict):
            self.lost["not_an_event"] += 1
            return
        phase = event.get("ph")
        if phase == "M":
            return
        if phase not in tuple("XBEbeniICPstf"):
            self.lost["unknown_phase"] += 1
            return
        start = self._time(event.get("ts"))
        if start is None:
            self.lost["bad_flow_time" if phase in "stf" else "bad_time"] += 1
        elif phase in "stf":
            self._flow(event, start)
        elif phase == "X":
            self._complete(event, start)
        elif phase in "Bb":
            self._stacks.setdefault(self._pair(event), []).append(self._row(event, start, None))
        elif phase in "Ee":
            self._end(event, start)
        else:
            self.rows.append(self._row(event, start, start))

    def _pair(self, event: Row) -> Any:
        if event["ph"] in "BE":
            return "B", (repr(event.get("pid")), repr(event.get("tid")))
        return "b", *(repr(event.get(key)) for key in ("cat", "name", "id", "id2", "scope"))

    def _row(self, event: Row, start: int, end: int | None) -> Row:
        beside = {key: value for key, value in event.items() if key not in _MEMBERS}
        if event["ph"] == "X":
            beside.pop("dur", None)
        return {
            "name": event.get("name"),
            "cat": event.get("cat"),
            "phase": event["ph"],
            "start": start,
            "end": end,
            "place": (event.get("pid"), event.get("tid")),
            "args": dict(event.get("args", {})),
            "members": beside,
        }

    def _complete(self, event: Row, start: int) -> None:
        end = None
        if "dur" in event:
            end = self._time(event["ts"], event["dur"])
            if end is None:
                self.lost["bad_time"] += 1
                return
        self.rows.append(self._row(event, start, end if end is None else max(start, end)))

    def _end(self, event: Row, time: int) -> None:
        stack = self._stacks.get(self._pair(event))
        if not stack:
            self.lost["unmatched_end"] += 1
            return
        row = stack.pop()
        row["end"] = max(time, row["start"])
        row["args"] |= event.get("args", {})
        gone = {*_MEMBERS, "id", "id2", "scope"} if event["ph"] == "e" else _MEMBERS
        row["members"] |= {f"end.{key}": value for key, value in event.items() if key not in gone}
        if event["ph"] == "e" and (event.get("pid"), event.get("tid")) != row["place"]:
            row["members"] |= {f"end.{key}": event[key] for key in ("pid", "tid") if key in event}
        self.rows.append(row)

    def _flow(self, event: Row, time: int) -> None:
        self.flows.append(
            {
                "phase": event["ph"],
                "id": event["id"] if "id" in event else {"id2": event["id2"]} if "id2" in event else None,
                "name": event.get("name"),
                "cat": event.get("cat"),
                "enclosing": event.get("bp") == "e",
                "place": (event.get("pid"), event.get("tid")),
                "time": time,
            }
        )


def as_twin(row: Row) -> Row:
    """A decoded row in the shape of the twin's."""
    return {
        "name": row["name"],
        "cat": row["cat"],
        "phase": row["phase"],
        "start": row["start"],
        "end": row["end"],
        "place": (row["pid"], row["tid"]),
        "args": arguments(row),
        "members": members(row),
    }

"""A second, slow reader and writer of event chunks, from docs/wire-format.md alone.

Nothing here looks at how the native encoder and decoder do it. Only for chunks
that are in order: what is wrong raises some exception.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

from backports import zstd

HEADER = struct.Struct("<IHBBIIQIIQQQqIIIIIIQ")
FIELDS: tuple[str, ...] = (
    "magic",
    "version",
    "codec",
    "flags",
    "length",
    "crc",
    "incarnation",
    "stream",
    "tid",
    "sequence",
    "id_base",
)
FIELDS += ("base", "real", "error", "pid", "events", "body_bytes", "slots", "thread_name", "epoch")
MAGIC = 0x31434650
RANGES = (1, 2, 3, 4, 5)
GPU = range(12, 19)
PATCH, THREAD = 10, 11
ASYNC, BACKEND, NAMED = 1, 8, 16
SEQUENCE, FORWARD, HANDLE, FLOPS, MODULE, STACK, MEMORY, INPUTS, ARGS, TENSORS = range(5, 15)
LOSSES, GPU_RECORD = 15, 16
_WORD = 1 << 64


@dataclass
class Event:
    """One slot that is an event, patch or change of thread; times are Unix ns."""

    slot: int
    kind: int
    name: str = ""
    flags: int = 0
    scope: int = 0
    extensions: int = 0
    start: int = 0
    end: int | None = None
    tid: int = 0
    end_tid: int | None = None
    fields: tuple[Any, ...] = ()  # of the kinds that have others than times
    attributes: dict[int, Any] = field(default_factory=dict)


@dataclass
class Chunk:
    """A chunk, its texts resolved only as far as it brings them itself."""

    header: dict[str, int]
    events: list[Event]
    strings: dict[int, str]
    losses: dict[str, int]
    name_ids: dict[int, int]  # slot -> string id


def signed(value: int) -> int:
    """Modulo 2^64, as a signed number."""
    value %= _WORD
    return value - _WORD if value >= _WORD >> 1 else value


class Bytes:
    """Reads."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        """So many bytes."""
        assert 0 <= count <= len(self.data) - self.at
        self.at += count
        return self.data[self.at - count : self.at]

    def u8(self) -> int:
        """One byte."""
        return self.take(1)[0]

    def varint(self) -> int:
        """LEB128."""
        value = shift = 0
        while True:
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                assert value < _WORD
                return value

    def svarint(self) -> int:
        """Zigzag."""
        value = self.varint()
        return -((value + 1) >> 1) if value & 1 else value >> 1

    def f64(self) -> float:
        """A double."""
        return struct.unpack("<d", self.take(8))[0]

    def end(self) -> None:
        """Nothing may be left."""
        assert self.at == len(self.data)


def varint(value: int) -> bytes:
    """LEB128."""
    value %= _WORD
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def svarint(value: int) -> bytes:
    """Zigzag."""
    value = signed(value)
    return varint(-2 * value - 1 if value < 0 else 2 * value)


def section(tag: int, content: bytes) -> bytes:
    """Tag, length, bytes."""
    return varint(tag) + varint(len(content)) + content


def pack(header: dict[str, int], body: bytes, *, compress: bool = False) -> bytes:
    """A whole chunk: lengths, codec and crc are filled in."""
    travels = zstd.compress(body, 1) if compress else body
    known = {"magic": MAGIC, "version": 1, "flags": 0, "error": 0, "thread_name": 0}
    sizes = {"length": HEADER.size + len(travels), "body_bytes": len(body)}
    values = {**known, **header, **sizes, "crc": 0, "codec": int(compress)}
    raw = HEADER.pack(*(values[name] for name in FIELDS)) + travels
    return raw[:12] + struct.pack("<I", zlib.crc32(raw[16:])) + raw[16:]


def split(data: bytes) -> list[tuple[dict[str, int], bytes]]:
    """(header, body) of the chunks one after the other."""
    found = []
    while data:
        header = dict(zip(FIELDS, HEADER.unpack(data[: HEADER.size]), strict=True))
        whole, data = data[: header["length"]], data[header["length"] :]
        assert header["magic"] == MAGIC
        assert zlib.crc32(whole[16:]) == header["crc"]
        body = whole[HEADER.size :]
        if header["codec"]:
            body = zstd.decompress(body)
        assert len(body) == header["body_bytes"]
        found.append((header, body))
    return found


def sections(body: bytes) -> dict[int, Bytes]:
    """By tag."""
    found, data = {}, Bytes(body)
    while data.at < len(body):
        tag = data.varint()
        assert tag not in found
        found[tag] = Bytes(data.take(data.varint()))
    return found


def read_strings(data: Bytes) -> dict[int, str]:
    """Section 1."""
    count, last, ids = data.varint(), 0, []
    for _ in range(count):
        last += data.varint()
        ids.append(last)
    lengths = [data.varint() for _ in ids]
    found = {number: data.take(length).decode("utf-8", "replace") for number, length in zip(ids, lengths, strict=True)}
    data.end()
    return found


def read_labels(data: Bytes) -> list[tuple[int, int, int, int, int]]:
    """Section 2: (name, kind, flags, scope, extensions)."""
    count, last, names = data.varint(), 0, []
    for _ in range(count):
        last += data.svarint()
        names.append(last)
    columns = [list(data.take(count)) for _ in range(4)]
    data.end()
    return list(zip(names, *columns, strict=True))


def read_nested(data: Bytes) -> list[tuple[int, int, int]]:
    """Section 3: (label, start, end), times relative to the base."""
    count, label_bytes, pop_bytes = data.varint(), data.varint(), data.varint()
    labels, pops = Bytes(data.take(label_bytes)), Bytes(data.take(pop_bytes))
    found, open_rows, now = [], [], None

    def moment() -> int:
        nonlocal now
        now = data.svarint() if now is None else now + data.varint()
        return now

    for row in range(count):
        for _ in range(pops.varint()):
            found[open_rows.pop()][2] = moment()
        found.append([labels.varint(), moment(), 0])
        open_rows.append(row)
    while open_rows:
        found[open_rows.pop()][2] = moment()
    for part in (labels, pops, data):
        part.end()
    return [(label, start, end) for label, start, end in found]


def read_slots(data: Bytes) -> list[int]:
    """The slots of an attribute."""
    slots, following = [], 0
    for _ in range(data.varint()):
        slots.append(following + data.varint())
        following = slots[-1] + 1
    return slots


def read_blobs(data: Bytes, count: int) -> list[bytes]:
    """Values by reference."""
    lengths = [data.varint() for _ in range(data.varint())]
    blobs = [data.take(length) for length in lengths]
    return [blobs[data.varint()] for _ in range(count)]


def read_attribute(tag: int, data: Bytes) -> dict[int, Any]:
    """Sections 5 - 14: values by slot."""
    slots = read_slots(data)
    if tag in (INPUTS, ARGS):
        values: list[Any] = read_blobs(data, len(slots))
    elif tag == SEQUENCE:
        values, last = [], 0
        for _ in slots:
            last = signed(last + data.svarint())
            values.append(last)
    elif tag in (FORWARD, MODULE, STACK):
        values = [data.varint() for _ in slots]
    elif tag == HANDLE:
        values = [data.svarint() for _ in slots]
    elif tag == FLOPS:
        values = [data.f64() for _ in slots]
    elif tag == MEMORY:
        values = []
        for _ in slots:
            device_type, device, bits = data.u8(), data.svarint(), data.u8()
            values.append(
                (device_type, device, data.svarint() if bits & 1 else None, data.svarint() if bits & 2 else None)
            )
    elif tag == GPU_RECORD:
        values, fields = [], [0] * 17
        for _ in slots:
            count = data.u8()
            assert count in (9, 17)
            for at in range(count):
                fields[at] = (fields[at] + data.svarint()) % _WORD
            values.append(tuple(fields[:count]))
    else:
        values, before = [], [0, 0]
        for _ in slots:
            pairs = []
            for _ in range(data.varint()):
                before = [(before[0] + data.svarint()) % _WORD, (before[1] + data.svarint()) % _WORD]
                pairs.append(tuple(before))
            values.append(pairs)
    data.end()
    return dict(zip(slots, values, strict=True))


def read_others(data: Bytes, labels: list[Any], header: dict[str, int]) -> list[Event]:
    """Section 4."""
    found: list[Event] = []
    following, clock, gpu_clock = 0, header["real"], header["real"]
    for _ in range(data.varint()):
        slot = following + data.varint()
        following = slot + 1
        label = data.varint()
        _, kind, flags, scope, extensions = labels[label]
        event = Event(slot, kind, "", flags, scope, extensions)
        event.fields = (label,)
        found.append(event)
        if kind == 0:
            continue
        if kind in GPU:
            gpu_clock = event.start = signed(gpu_clock + data.svarint())
        elif kind not in range(6, 12) and flags & BACKEND:
            event.start = signed(header["real"] + data.svarint())
        else:
            clock = event.start = signed(clock + data.svarint())
        event.end = event.start
        if kind == 7:
            event.fields += (data.f64(),)
        elif kind == 8:
            event.fields += (data.svarint(), data.varint())
        elif kind == 9:
            event.fields += (data.svarint(),)
        elif kind == PATCH:
            event.fields += (data.varint(), data.varint(), data.varint())
        elif kind == THREAD:
            event.fields += (data.varint(), data.varint())
        elif kind != 6:
            length = data.varint()
            unzigzag = (length - 1) >> 1 if (length - 1) & 1 == 0 else -(length >> 1)
            event.end = signed(event.start + unzigzag) if length else None
    data.end()
    return found


def read_chunk(header: dict[str, int], body: bytes) -> Chunk:
    """Everything in a chunk; events in the order of their slots."""
    parts = sections(body)
    empty = Bytes(b"\0")
    strings = read_strings(parts[1]) if 1 in parts else {}
    labels = read_labels(parts.get(2, empty))
    others = read_others(parts[4], labels, header) if 4 in parts else []
    taken = {event.slot: event for event in others}
    events, slot = list(others), 0
    nested = read_nested(parts[3]) if 3 in parts else []
    for label, start, end in nested:
        while slot in taken:
            slot += 1 + taken[slot].extensions
        _, kind, flags, scope, extensions = labels[label]
        real = header["real"]
        events.append(Event(slot, kind, "", flags, scope, extensions, real + start, real + end, fields=(label,)))
        slot += 1 + extensions
    events.sort(key=lambda event: event.slot)
    tid, name_ids = header["tid"], {}
    by_slot = {event.slot: event for event in events}
    for event in events:
        name_ids[event.slot] = labels[event.fields[0]][0]
        event.fields = event.fields[1:]
        if event.kind == THREAD:
            tid = event.fields[0]
        event.tid = tid
    for tag in [*range(5, 15), GPU_RECORD]:
        if tag in parts:
            for number, value in read_attribute(tag, parts[tag]).items():
                by_slot[number].attributes[tag] = value
    losses = {}
    if LOSSES in parts:
        data = parts[LOSSES]
        for _ in range(data.varint()):
            reason = data.take(data.varint()).decode()
            losses[reason] = data.varint()
        data.end()
    return Chunk(header, events, strings, losses, name_ids)


def read_file(data: bytes) -> list[Event]:
    """The events of all chunks, texts resolved and ends joined; of one (incarnation, epoch)."""
    chunks = [read_chunk(header, body) for header, body in split(data)]
    strings: dict[int, str] = {0: ""}
    ends: dict[tuple[int, int, int], Event] = {}
    for chunk in chunks:
        strings |= chunk.strings
        for event in chunk.events:
            if event.kind == PATCH:
                ends.setdefault(event.fields, event)
    found = []
    for chunk in chunks:
        for event in chunk.events:
            if event.kind in (0, PATCH, THREAD):
                continue
            event.name = strings[chunk.name_ids[event.slot]]
            for tag in (MODULE, STACK):
                if tag in event.attributes:
                    event.attributes[tag] = strings[event.attributes[tag]]
            patch = ends.get((chunk.header["stream"], chunk.header["sequence"], event.slot))
            if event.end is None and patch is not None:
                event.end, event.end_tid = patch.start, patch.tid
            event.fields = (chunk.header["id_base"] + event.slot, *event.fields)
            found.append(event)
    return found


def write_strings(strings: dict[int, str]) -> bytes:
    """Section 1."""
    ids = sorted(strings)
    texts = [strings[number].encode() for number in ids]
    steps = [number - before for number, before in zip(ids, [0, *ids], strict=False)]
    numbers = [len(ids), *steps, *map(len, texts)]
    return section(1, b"".join(map(varint, numbers)) + b"".join(texts))


def write_chunk(header: dict[str, int], events: list[Event], *, compress: bool = False) -> bytes:
    """A chunk of events in the order of their slots, which bring their own texts. Patches and threads included.

    `fields` are what `read_file` gives: the correlation id first, where there are more.
    """
    strings: dict[str, int] = {"": 0}

    def text(value: str) -> int:
        return strings.setdefault(value, header["sequence"] * 4096 + len(strings) * 5)

    labels: dict[tuple[int, ...], int] = {}

    def label(event: Event) -> int:
        name = 0 if event.kind in (PATCH, THREAD) else text(event.name)
        return labels.setdefault((name, event.kind, event.flags, event.scope, event.extensions), len(labels))

    nested, others = _sorted_out(events)
    parts = [_write_nested(nested, label, header) if nested else b"", _write_others(others, label, header, text)]
    parts += [_write_attribute(tag, events, text) for tag in range(5, 15)]
    names = [key[0] for key in labels]
    columns = b"".join(svarint(name - before) for name, before in zip(names, [0, *names], strict=False))
    columns += b"".join(bytes(key[at] for key in labels) for at in range(1, 5))
    parts.insert(0, section(2, varint(len(labels)) + columns))
    parts.append(write_strings({number: value for value, number in strings.items() if number}))
    slots = max((event.slot + 1 + event.extensions for event in events), default=0)
    count = sum(event.kind not in (PATCH, THREAD) for event in events)
    return pack({**header, "slots": slots, "events": count}, b"".join(parts), compress=compress)


def _end(event: Event) -> int:
    assert event.end is not None
    return event.end


def _sorted_out(events: list[Event]) -> tuple[list[Event], list[Event]]:
    """Those that lie within one another and fill the slots that the others leave; and the others."""
    nested: list[Event] = []
    others = []
    for event in events:
        plain = event.kind in RANGES and event.end is not None and not event.flags & (ASYNC | BACKEND)
        fits = plain and all(
            each.start <= event.start and (_end(each) <= event.start or _end(event) <= _end(each)) for each in nested
        )
        (nested if fits and event.start <= _end(event) else others).append(event)
    return nested, others


def _write_nested(nested: list[Event], label: Any, header: dict[str, int]) -> bytes:
    labels = pops = b""
    times: list[int] = []
    open_events: list[Event] = []
    for event in nested:
        count = 0
        while open_events and _end(open_events[-1]) <= event.start:
            times.append(_end(open_events.pop()))
            count += 1
        labels, pops = labels + varint(label(event)), pops + varint(count)
        times.append(event.start)
        open_events.append(event)
    times += [_end(event) for event in reversed(open_events)]
    steps = svarint(times[0] - header["real"])
    steps += b"".join(varint(time - before) for time, before in zip(times[1:], times, strict=False))
    return section(3, varint(len(nested)) + varint(len(labels)) + varint(len(pops)) + labels + pops + steps)


def _write_others(others: list[Event], label: Any, header: dict[str, int], text: Any) -> bytes:
    out, following, clock, real = varint(len(others)), 0, header["real"], header["real"]
    for event in others:
        out += varint(event.slot - following) + varint(label(event))
        following = event.slot + 1
        if event.flags & BACKEND and event.kind in RANGES:
            out += svarint(event.start - real)
        else:
            out += svarint(event.start - clock)
            clock = event.start
        fields = event.fields if event.kind in (PATCH, THREAD) else event.fields[1:]
        if event.kind == 7:
            out += struct.pack("<d", *fields)
        elif event.kind == 8:
            out += svarint(fields[0]) + varint(fields[1])
        elif event.kind == 9:
            out += svarint(fields[0])
        elif event.kind == THREAD:
            out += varint(fields[0]) + varint(text(event.name))
        elif event.kind == PATCH:
            out += b"".join(map(varint, fields))
        elif event.kind != 6 and (event.end is None or event.end_tid is not None):
            out += varint(0)
        elif event.kind != 6:
            length = _end(event) - event.start
            out += varint(1 + (2 * length if length >= 0 else -2 * length - 1))
    return section(4, out)


def _write_attribute(tag: int, events: list[Event], text: Any) -> bytes:
    having = [event for event in events if tag in event.attributes]
    if not having:
        return b""
    slots = [event.slot for event in having]
    values = [event.attributes[tag] for event in having]
    out = varint(len(slots)) + b"".join(
        varint(slot - before - 1) for slot, before in zip(slots, [-1, *slots], strict=False)
    )
    if tag in (INPUTS, ARGS):
        out += varint(len(values)) + b"".join(varint(len(value)) for value in values) + b"".join(values)
        out += b"".join(map(varint, range(len(values))))
    elif tag == SEQUENCE:
        out += b"".join(svarint(value - before) for value, before in zip(values, [0, *values], strict=False))
    elif tag == FORWARD:
        out += b"".join(map(varint, values))
    elif tag in (MODULE, STACK):
        out += b"".join(varint(text(value)) for value in values)
    elif tag == HANDLE:
        out += b"".join(map(svarint, values))
    elif tag == FLOPS:
        out += struct.pack(f"<{len(values)}d", *values)
    elif tag == MEMORY:
        for device_type, device, allocated, reserved in values:
            bits = (allocated is not None) | (reserved is not None) << 1
            out += bytes([device_type]) + svarint(device) + bytes([bits])
            out += b"".join(svarint(total) for total in (allocated, reserved) if total is not None)
    else:
        last = (0, 0)
        for pairs in values:
            out += varint(len(pairs))
            for pair in pairs:
                out += svarint(pair[0] - last[0]) + svarint(pair[1] - last[1])
                last = pair
    return section(tag, out)

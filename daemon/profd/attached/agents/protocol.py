"""Packets between an agent and the daemon (docs/agent-protocol.md): bytes to checked values and back. No I/O."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Final

from profd.errors import BadInput
from profd.gpu.states import GpuReport, report_from_untrusted
from profd.limits import (
    AGENT_KEYS_MAX,
    AGENT_LABEL_CHARACTERS_MAX,
    AGENT_PACKET_BYTES_MAX,
    AGENT_VALUE_CHARACTERS_MAX,
    AGENT_WORDS_MAX,
    RANK_MAX,
    THREAD_NAME_CHARACTERS_MAX,
)
from profd.model.capture import ProgramSteps
from profd.model.said import few
from profd.model.wish import Wish

VERSION: Final = 1
_MAGIC: Final = 0x31474150
_HEADER: Final = struct.Struct("<IHHQ")
_I64_MAX: Final = (1 << 63) - 1
_DECIMAL: Final = re.compile(r"[0-9]{1,19}")
_SECONDS: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")
_HEXADECIMAL: Final = re.compile(r"[0-9a-f]{1,16}")
_CONTROL: Final = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]")  # all but the end of a line
_VERSIONS: Final = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_SHARED_MAX: Final = 256  # texts, and sets of words, that hundreds of processes say alike
_OF_HELLO: Final = ("versions", "incarnation", "armed", "left")  # what no CHANGED changes
SOURCES: Final = ("ranges", "stacks", "ops", "cuda", "memory")
"""What the seconds spent recording are told apart by."""


class PacketKind(IntEnum):
    """The kind of a packet; the numbers are the protocol's."""

    HELLO = 1
    WELCOME = 2
    REFUSED = 3
    ARM = 4
    ARMED = 5
    STOP = 6
    STOPPED = 7
    RELEASE = 8
    STATUS = 9
    FAILED = 10
    CHANGED = 11
    LIMIT = 12
    DISARMED = 13
    RECALL = 14
    RECALLED = 15
    STEPS = 16
    REQUEST = 17


class Hostile(BadInput):
    """A packet or descriptor that no agent of ours sends."""


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet: values are printable text of bounded length, still to be understood. `kind` may be unknown."""

    kind: int
    epoch: int
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Left:
    """A recording that no daemon came for in time: its arena is gone. Counts are of events, since it began."""

    epoch: int
    events: int  # recorded, whether drained or not
    dropped: int


@dataclass(frozen=True, slots=True)
class Hello:
    """An agent's word about its process. Claims, good for labels and never for identity."""

    versions: tuple[int, int]
    incarnation: int
    agent: str = ""
    python: str = ""
    framework: str = ""
    can: frozenset[str] = frozenset()
    rank: int | None = None
    world: int | None = None
    job: str = ""
    pod: str = ""
    kept: int | None = None  # collectives that its flight recorder keeps at most; None: it does not say
    armed: int = 0  # the epoch it is still armed for; 0: none
    left: Left | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The counts of an armed agent so far."""

    events: int = 0
    seconds: float = 0.0  # spent recording, all threads together
    lasted_s: float | None = None  # since it was armed, when these were counted; None: an agent that does not tell
    limits: int | None = None  # LIMITs that it had obeyed by then; None as above
    by_source: Mapping[str, float] = field(default_factory=dict)
    steps: int = 0  # whole ones since it was armed
    step_ns: int | None = None  # median of whole ones since the last status; in STOPPED of all
    step_ns_before: int | None = None  # median of the last before it was armed; no pause since
    step_ns_after: int | None = None  # median of the last since it was stopped
    after_over: bool = False  # no more of these will be told
    step_from: int | None = None  # the program's number of the first whole step; None: it numbers none
    step_to: int | None = None  # and of the first that is not whole any more
    awaits_step: bool = False  # nothing is recorded yet
    at_step: int = 0  # while it waits: steps that have begun
    dropped: int = 0
    first_ns: int | None = None  # Unix ns from which ranges were recorded; of STOPPED
    not_honoured: tuple[str, ...] = ()  # what turned out after ARMED
    file: str = ""  # what torch's own profiler wrote; of STOPPED
    device_times: str = ""  # "cuda_events" where operators have device times by these
    gpu: GpuReport = field(default_factory=GpuReport)  # what the CUPTI collector says
    thread_names: Mapping[str, str] = field(default_factory=dict)  # by the thread's id, as Python has them


def encode(kind: PacketKind, epoch: int = 0, **fields: object) -> bytes:
    """A packet of ours. Values must be free of control characters; ValueError if it is too long."""
    body = "".join(f"{key}={value}\n" for key, value in fields.items()).encode()
    if len(body) + _HEADER.size > AGENT_PACKET_BYTES_MAX:
        raise ValueError(f"a packet of {len(body)} bytes is longer than {AGENT_PACKET_BYTES_MAX}")
    return _HEADER.pack(_MAGIC, kind, 0, epoch) + body


def parse_untrusted_packet(packet: bytes) -> Packet:
    """The packet's fields. Raises Hostile, saying what is wrong with it."""
    if not _HEADER.size <= len(packet) <= AGENT_PACKET_BYTES_MAX:
        raise Hostile(f"a packet of {len(packet)} bytes")
    magic, kind, reserved, epoch = _HEADER.unpack_from(packet)
    if magic != _MAGIC or reserved:
        raise Hostile("a packet that does not begin as the protocol's do")
    return Packet(kind, epoch, _fields(packet[_HEADER.size :]))


def hello_from_untrusted(packet: Packet) -> Hello:
    """The contents of a HELLO. Raises Hostile where a number is none; texts are cut, an impossible rank is left out."""
    fields = packet.fields
    versions = _VERSIONS.fullmatch(fields.get("versions", ""))
    if versions is None:
        raise Hostile("HELLO without versions")
    incarnation = hexadecimal(fields, "incarnation")
    if not incarnation:
        raise Hostile("HELLO without an incarnation")
    return Hello(
        versions=(int(versions[1]), int(versions[2])),
        incarnation=incarnation,
        # The same few values in hundreds of processes.
        agent=_label(fields, "agent"),
        python=_label(fields, "python"),
        framework=_label(fields, "framework"),
        can=_words(fields.get("can", "")),
        rank=_rank(fields, "rank"),
        world=_rank(fields, "world"),
        job=_label(fields, "job"),
        pod=_label(fields, "pod"),
        kept=number(fields, "kept"),
        armed=hexadecimal(fields, "armed") or 0,
        left=_left(fields),
    )


def changed_from_untrusted(hello: Hello, packet: Packet) -> Hello:
    """HELLO as it reads after a CHANGED; keys that are absent stay. Raises Hostile."""
    known = {
        "versions": f"{hello.versions[0]}-{hello.versions[1]}",
        "incarnation": f"{hello.incarnation:x}",
        "agent": hello.agent,
        "python": hello.python,
        "framework": hello.framework,
        "can": ",".join(sorted(hello.can)),
        "job": hello.job,
        "pod": hello.pod,
        **({} if hello.rank is None else {"rank": str(hello.rank)}),
        **({} if hello.world is None else {"world": str(hello.world)}),
        **({} if hello.kept is None else {"kept": str(hello.kept)}),
    }
    changes = {key: value for key, value in packet.fields.items() if key not in _OF_HELLO}
    return hello_from_untrusted(Packet(packet.kind, 0, {**known, **changes}))


def status_from_untrusted(packet: Packet) -> Status:
    """The counts of a STATUS or STOPPED. Raises Hostile."""
    fields = packet.fields
    by_source = {
        source: seconds for source in SOURCES if (seconds := _seconds(fields, f"seconds.{source}")) is not None
    }
    return Status(
        events=number(fields, "events") or 0,
        seconds=_seconds(fields, "seconds") or 0.0,
        lasted_s=None if (lasted_ms := number(fields, "lasted_ms")) is None else lasted_ms / 1000,
        limits=number(fields, "limits"),
        by_source=by_source,
        steps=number(fields, "steps") or 0,
        step_ns=number(fields, "step_ns") or None,
        step_ns_before=number(fields, "step_ns_before") or None,
        step_ns_after=number(fields, "step_ns_after") or None,
        after_over=fields.get("after") == "over",
        step_from=number(fields, "step_from"),
        step_to=number(fields, "step_to"),
        awaits_step=bool(number(fields, "awaits_step")),
        at_step=number(fields, "at_step") or 0,
        dropped=number(fields, "dropped") or 0,
        first_ns=number(fields, "first") or None,
        not_honoured=sentences(fields, "not_honoured"),
        file=fields.get("file", ""),
        device_times=fields.get("device_times", ""),
        gpu=report_from_untrusted(fields),
        thread_names=_thread_names(fields.get("thread_names", "")),
    )


def steps_from_untrusted(packet: Packet) -> ProgramSteps:
    """The answer to STEPS. Raises Hostile."""
    fields = packet.fields
    return ProgramSteps(
        number(fields, "begun") or 0, number(fields, "running_ns") or 0, number(fields, "step_ns") or None
    )


def wish_from_untrusted(packet: Packet) -> Wish:
    """The capture that a program asks for. Raises Hostile; what it may ask for is not decided here."""
    fields = packet.fields
    return Wish(
        number=packet.epoch,
        incarnation=hexadecimal(fields, "incarnation") or 0,
        iterations=number(fields, "iterations") or 0,
        duration_ns=number(fields, "duration") or 0,
        begin_step=number(fields, "begin_step"),
        reason=fields.get("reason", "")[:AGENT_LABEL_CHARACTERS_MAX],
        key=fields.get("key", "")[:AGENT_LABEL_CHARACTERS_MAX],
        local=number(fields, "local") or 0,
        hosts=number(fields, "hosts") or 1,
    )


def number(fields: Mapping[str, str], key: str) -> int | None:
    """A decimal number up to 2^63-1, None if absent or empty. Raises Hostile."""
    text = fields.get(key, "")
    if not text:
        return None
    if not _DECIMAL.fullmatch(text) or int(text) > _I64_MAX:
        raise Hostile(f"{key}={text[:32]!r} is no number")
    return int(text)


def hexadecimal(fields: Mapping[str, str], key: str) -> int | None:
    """A hexadecimal number up to 2^64-1, None if absent or empty. Raises Hostile."""
    text = fields.get(key, "")
    if not text:
        return None
    if not _HEXADECIMAL.fullmatch(text):
        raise Hostile(f"{key}={text[:32]!r} is no hexadecimal number")
    return int(text, 16)


def _thread_names(text: str) -> dict[str, str]:
    """`TID NAME`, `;`-separated; what is no such pair is left out."""
    pairs = (pair.partition(" ") for pair in text.split(";"))
    return {tid: name[:THREAD_NAME_CHARACTERS_MAX] for tid, _, name in pairs if name and _DECIMAL.fullmatch(tid)}


def sentences(fields: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Sentences, `;`-separated: no more than are kept of them."""
    return tuple(few(text.strip() for text in fields.get(key, "").split(";") if text.strip()))


def _seconds(fields: Mapping[str, str], key: str) -> float | None:
    text = fields.get(key, "")
    if not text:
        return None
    if not _SECONDS.fullmatch(text):
        raise Hostile(f"{key}={text[:32]!r} is no time in seconds")
    return float(text)


def _left(fields: Mapping[str, str]) -> Left | None:
    epoch = hexadecimal(fields, "left")
    return Left(epoch, number(fields, "left_events") or 0, number(fields, "left_dropped") or 0) if epoch else None


def _rank(fields: Mapping[str, str], key: str) -> int | None:
    """None also beyond RANK_MAX: one process must not break lists that it stands in."""
    found = number(fields, key)
    return None if found is None or found > RANK_MAX else found


def _label(fields: Mapping[str, str], key: str) -> str:
    return _shared_text(fields.get(key, "")[:AGENT_LABEL_CHARACTERS_MAX])


@lru_cache(maxsize=_SHARED_MAX)
def _shared_text(text: str) -> str:
    """One object for equal texts. sys.intern would keep each for ever on CPython 3.12: 4 MB a second of one user."""
    return text


def _fields(body: bytes) -> dict[str, str]:
    if _CONTROL.search(body):
        raise Hostile("a packet with control characters")
    lines = body.decode("utf-8", "replace").split("\n")
    if lines.pop():
        raise Hostile("a packet whose last line has no end")
    if len(lines) > AGENT_KEYS_MAX:
        raise Hostile(f"a packet of {len(lines)} lines")
    fields: dict[str, str] = {}
    for line in lines:
        key, equals, value = line.partition("=")
        if not equals or not key.isascii() or key in fields:
            raise Hostile("a line that is no key=value, or a key twice")
        fields[key] = _printable(value[:AGENT_VALUE_CHARACTERS_MAX])
    return fields


def _printable(value: str) -> str:
    if value.isprintable():
        return value
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in value)


def _words(text: str) -> frozenset[str]:
    # Every process of a job can the same; what is longer than any of ours says is kept by who says it.
    return _shared_words(text) if len(text) <= AGENT_LABEL_CHARACTERS_MAX else _words_of(text)


@lru_cache(maxsize=_SHARED_MAX)
def _shared_words(text: str) -> frozenset[str]:
    return _words_of(text)


def _words_of(text: str) -> frozenset[str]:
    words = [word for word in text.split(",") if word]
    if len(words) > AGENT_WORDS_MAX:
        raise Hostile(f"{len(words)} words where {AGENT_WORDS_MAX} are the most")
    return frozenset(words)

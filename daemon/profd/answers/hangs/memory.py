"""What a process's flight recorder remembers: bytes of a target to checked values (docs/facts/flight-recorder.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeVar

import msgspec

from profd.errors import BadInput
from profd.model.decodable import decodable
from profd.model.text import printable_text

CALLS_MAX: Final = 50_000  # of one process: 25 times of what is kept unless a job asks for more
GROUPS_MAX: Final = 4096
_NAME_CHARACTERS: Final = 128
_I64_MAX: Final = (1 << 63) - 1
_Kind = TypeVar("_Kind")
_Count = Annotated[int, msgspec.Meta(ge=-1, le=_I64_MAX)]


@dataclass(frozen=True, slots=True)
class Numbers:
    """The last collectives of one group; -1: none yet."""

    enqueued: int
    completed: int

    @property
    def waits(self) -> bool:
        """One at least was begun and is not over."""
        return self.enqueued > self.completed


@dataclass(frozen=True, slots=True)
class Call:
    """One collective that a process called. `elements`: of its inputs together; None where they are not recorded."""

    group: str  # a name that all ranks of the group have for it
    described: str  # for people; may be empty
    sequence: int
    operation: str
    elements: int | None
    over: bool
    created_ns: int  # by the clock of its host
    between_two: bool = False  # send or recv: numbered by themselves, and no matter of the whole group


@dataclass(frozen=True, slots=True)
class Memory:
    """All of one process. `numbers`: by the process's own id of a group, which differs between ranks."""

    numbers: Mapping[str, Numbers] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()


class _Status(msgspec.Struct):
    last_enqueued_collective: _Count | str = -1
    last_completed_collective: _Count | str = -1


class _Entry(msgspec.Struct):
    process_group: list[str] = []
    collective_seq_id: _Count = -1
    is_p2p: bool = False
    profiling_name: str = ""
    input_sizes: list[Any] = []
    retired: bool = False
    time_created_ns: _Count = 0


@decodable
class _Progress(msgspec.Struct):
    """A dump without what is remembered: whatever else is in it is skipped, and makes no objects."""

    pg_status: dict[str, _Status] = {}


@decodable
class _Dump(_Progress):
    """All of it."""

    entries: list[_Entry] = []


def numbers_from_untrusted(dump: bytes) -> dict[str, Numbers]:
    """How far each group is. Raises BadInput where a dump is none, or has more groups than any job.

    For RECALL_NUMBERS_BYTES_MAX: the daemon itself reads these, in 2 ms at most.
    """
    return _of_groups(_decoded(dump, _Progress).pg_status)


def memory_from_untrusted(dump: bytes) -> Memory:
    """What a dump says. Raises BadInput where it is none, or longer than any job's.

    For workers: 8 MiB of empty entries take seconds and gigabytes.
    """
    found = _decoded(dump, _Dump)
    if len(found.entries) > CALLS_MAX:
        raise BadInput(f"its flight recorder remembers more than {CALLS_MAX} collectives")
    calls = tuple(_call(entry) for entry in found.entries if entry.process_group)
    return Memory(_of_groups(found.pg_status), calls)


def _decoded(dump: bytes, kind: type[_Kind]) -> _Kind:
    try:
        return msgspec.json.decode(dump, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"what its flight recorder says is malformed: {str(error)[:200]}") from error


def _of_groups(statuses: Mapping[str, _Status]) -> dict[str, Numbers]:
    if len(statuses) > GROUPS_MAX:
        raise BadInput(f"its flight recorder remembers more than {GROUPS_MAX} groups")
    return {_name(group): _numbers(status) for group, status in statuses.items()}


def _numbers(status: _Status) -> Numbers:
    return Numbers(_number(status.last_enqueued_collective), _number(status.last_completed_collective))


def _number(value: int | str) -> int:
    """Torch writes these as text."""
    if isinstance(value, int):
        return value
    if len(value) > 19 or not value.removeprefix("-").isascii() or not value.removeprefix("-").isdigit():
        raise BadInput(f"what its flight recorder says is malformed: {_name(value)!r} is no number of a collective")
    return int(value)


def _call(entry: _Entry) -> Call:
    group, *described = entry.process_group
    return Call(
        group=_name(group),
        described=_name(described[0]) if described else "",
        sequence=entry.collective_seq_id,
        operation=_name(entry.profiling_name.rpartition(":")[2]),  # gloo:all_reduce
        elements=_elements(entry.input_sizes),
        over=entry.retired,
        created_ns=entry.time_created_ns,
        between_two=entry.is_p2p,
    )


def _elements(sizes: list[Any]) -> int | None:
    """None for what are no sizes: nothing is compared then."""
    if not sizes or not all(_is_shape(shape) for shape in sizes):
        return None
    total: int = sum(math.prod(shape) for shape in sizes)
    return total


def _is_shape(shape: object) -> bool:
    return isinstance(shape, list) and len(shape) <= 64 and all(type(n) is int and 0 <= n <= _I64_MAX for n in shape)


def _name(text: str) -> str:
    return printable_text(text, _NAME_CHARACTERS)

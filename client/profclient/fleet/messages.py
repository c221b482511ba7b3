"""Answers of hosts, measured before they are parsed: two bytes of one can be an object of three hundred in memory."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError
from profproto.v1 import capture_pb2

from profclient.errors import ClientError
from profclient.wire import fields

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

MEASURED_BYTES: Final = 64 * 1024  # of an answer; a smaller one has room for little
ELEMENTS_MAX: Final = 1_000_000  # texts and objects of one answer: frames of 256 processes with 64 threads each
TARGETS_MAX: Final = 4096  # processes of one capture on one host, of which a daemon takes 256
COLLECTIVES_BYTES_MAX: Final = 64 << 20  # said of jobs, once for each process: 20 kB of 256 of them are 5 MiB
SENTENCE_CHARACTERS_MAX: Final = 1000  # of what a host says of itself, or of a process


def parsed(untrusted: bytes, kind: Any) -> Any:
    """The message of this kind. Raises ClientError for what no daemon answers."""
    if len(untrusted) > MEASURED_BYTES and not _is_small(untrusted, kind.DESCRIPTOR):
        raise ClientError(f"its answer has more than {ELEMENTS_MAX:,} parts: no profd says that much.")
    try:
        message = kind.FromString(untrusted)
    except DecodeError as error:
        raise ClientError("its answer is none of profd's.") from error
    if len(getattr(message, "targets", ())) > TARGETS_MAX:
        raise ClientError(f"it names more than {TARGETS_MAX:,} processes of one capture: no profd records as many.")
    if kind is capture_pb2.WhereResponse:
        _check_collectives(message)
    return message


def _check_collectives(answer: capture_pb2.WhereResponse) -> None:
    """What is said of a job is told with each of its processes: much about many would be their product."""
    asked = sum(len(job.pids) for job in answer.collectives)
    if max(asked, len(answer.processes)) > TARGETS_MAX:
        raise ClientError(f"it speaks of more than {TARGETS_MAX:,} processes: no profd looks at as many.")
    processes = Counter(process.pid for process in answer.processes)
    told = sum(job.ByteSize() * sum(processes[pid] for pid in set(job.pids)) for job in answer.collectives)
    if told > COLLECTIVES_BYTES_MAX:
        raise ClientError("it says more of collectives than all of its processes can have been in.")


def sentence(said: str) -> str:
    """A host's word, cut to what somebody may read."""
    return said if len(said) <= SENTENCE_CHARACTERS_MAX else f"{said[:SENTENCE_CHARACTERS_MAX]}…"


def _is_small(data: bytes, kind: Descriptor) -> bool:
    """Whether it has few parts, those of its parts included."""
    left = ELEMENTS_MAX
    waiting = [(memoryview(data), kind)]
    try:
        while waiting:
            part, described = waiting.pop()
            for number, value in fields(part):
                if value is None:
                    continue
                left -= 1
                if left < 0:
                    return False
                field = described.fields_by_number.get(number)
                if field is not None and field.message_type is not None and value:
                    waiting.append((value, field.message_type))
    except (ValueError, IndexError):
        return False
    return True

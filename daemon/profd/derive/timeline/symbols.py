"""The instructions of XLA programs: the framework's operator and the source line that each was compiled from.

Kernels of XLA carry the name of an instruction (`hlo_op`) and the number of its program; the program itself, an HLO
proto, lies in the trace once. A program is read when the first kernel asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from google.protobuf.message import DecodeError
from profproto.xspace import hlo_pb2

from profd.limits import STRING_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Symbol:
    """Of one instruction; empty where there is none."""

    framework: str = ""  # full name of the operator, `path/name:Type`; `:` of one that XLA added itself
    source: str = ""  # `file.py:12`; empty where the program does not tell


NOTHING: Final = Symbol()


class Symbols:
    """Of all programs of a trace: number of the program -> its HLO proto, serialised and not trusted.

    Bytes that are no HLO proto name nothing.
    """

    def __init__(self, programs: Mapping[int, bytes] | None = None) -> None:
        self._programs = dict(programs or {})
        self._read: dict[int, tuple[str, dict[str, Symbol]]] = {}
        self._first: dict[str, int] | None = None  # name of the module -> its program

    def of_program(self, program: int, op: str) -> Symbol:
        """An instruction of a program."""
        return self._program(program)[1].get(op, NOTHING)

    def of_module(self, module: str, op: str) -> Symbol:
        """An instruction of the first program with this name, as traces say it that do not number programs."""
        if self._first is None:
            self._first = {self._program(number)[0]: number for number in sorted(self._programs, reverse=True)}
        return self.of_program(self._first[module], op) if module in self._first else NOTHING

    def _program(self, program: int) -> tuple[str, dict[str, Symbol]]:
        if program not in self._programs:
            return "", {}
        if program not in self._read:
            self._read[program] = _read(self._programs[program])
        return self._read[program]


def _read(content: bytes) -> tuple[str, dict[str, Symbol]]:
    try:
        module = hlo_pb2.HloProto.FromString(content).hlo_module
    except DecodeError:
        return "", {}
    symbols: dict[str, Symbol] = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            # Names are unique in a module; should they not be, the first one is meant.
            symbols.setdefault(_text(instruction.name), _symbol(instruction.metadata, module.stack_frame_index))
    return _text(module.name), symbols


def _symbol(metadata: Any, frames: Any) -> Symbol:
    return Symbol(f"{_text(metadata.op_name)}:{_text(metadata.op_type)}", _source(metadata, frames))


def _source(metadata: Any, frames: Any) -> str:
    """The file without its folders; programs of newer JAX tell it by a number alone."""
    file, line = metadata.source_file, metadata.source_line
    if not file:
        frame = _numbered(frames.stack_frames, metadata.stack_frame_id)
        location = frame and _numbered(frames.file_locations, frame.file_location_id)
        if not location:
            return ""
        file, line = _numbered(frames.file_names, location.file_name_id), location.line
    return f"{PurePosixPath(_text(file)).name}:{line}" if file else ""


def _numbered(values: Any, number: int) -> Any:
    """An entry of a list that is counted from 1, None if it has no such entry."""
    return values[number - 1] if 0 < number <= len(values) else None


def _text(value: bytes) -> str:
    return value[:STRING_BYTES_MAX].decode("utf-8", "replace")

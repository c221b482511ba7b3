"""The question `export`, and the formats it knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from gzip import GzipFile
from typing import BinaryIO, Final, cast

import numpy as np

from profd.derive.steps import STEP_COLUMNS
from profd.errors import BadInput
from profd.export.redact import RedactedReader
from profd.query.steps import StepMarks, why_none
from profd.segments.reader import TraceReader, Window
from profd.workers.jobs import Progress, imported


@dataclass(frozen=True, slots=True)
class Format:
    """`writer`: "module:function" of `def write(reader, out, window, progress, min_duration_ns) -> int`.

    It returns the events written; `window` is [from, to) in Unix ns or None for
    all of the trace, `min_duration_ns` leaves out what is shorter.
    """

    writer: str
    redacts: bool = False  # made from nothing but what a reader shows
    gzips: str = ""  # "always": its readers expect it; "never": it is compressed already


FORMATS: Final[dict[str, Format]] = {
    "chrome": Format("profd.export.chrome:write", redacts=True),
    "perfetto": Format("profd.export.perfetto:write", redacts=True),
    "folded": Format("profd.export.folded:write"),
    "speedscope": Format("profd.export.speedscope:write"),
    "pprof": Format("profd.export.pprof:write", gzips="always"),
    "xspace": Format("profd.export.xspace:write"),
    "parquet": Format("profd.export.parquet:write", gzips="never"),
    "bundle": Format("profd.export.bundle:write", redacts=True, gzips="never"),
}
_FAR_FUTURE_NS: Final = (1 << 63) - 1


def export(
    trace: TraceReader,
    out: BinaryIO,
    progress: Progress,
    *,
    format: str,  # noqa: A002 - what askers call it
    min_duration_ns: int,
    gzip: bool,
    redact: Sequence[str],
    **part: int | None,
) -> int:
    """Write the trace in another format; how many events it has.

    Raises BadInput for an empty window, steps that there are not, or a redaction that the format cannot serve.
    """
    form = FORMATS[format]
    packed = _packed(format, form, gzip)
    window = _window(trace, **part)
    if redact and not form.redacts:
        able = ", ".join(known for known, other in FORMATS.items() if other.redacts)
        raise BadInput(f"--redact does not work with the format {format}; it does with {able}")
    reader = RedactedReader(trace.directory, redact) if redact else trace
    write = imported(form.writer)
    if not packed:
        return int(write(reader, out, window, progress, min_duration_ns=min_duration_ns))
    # No name and no time in the header: the same trace gives the same bytes.
    with GzipFile("", "wb", compresslevel=3, fileobj=out, mtime=0) as file:
        return int(write(reader, cast(BinaryIO, file), window, progress, min_duration_ns=min_duration_ns))


def _packed(name: str, form: Format, wanted: bool) -> bool:
    if form.gzips == "never" and wanted:
        raise BadInput(f"a file of the format {name} is compressed already: give it a name without .gz")
    return wanted or form.gzips == "always"


def _window(
    reader: TraceReader, from_ns: int | None, to_ns: int | None, first_step: int | None, last_step: int | None
) -> Window | None:
    if first_step is None:
        return _relative(reader, from_ns, to_ns)
    if from_ns is not None or to_ns is not None:
        raise BadInput("--step and --window both say which part: give one of them")
    return _steps(reader, first_step, first_step if last_step is None else last_step)


def _relative(reader: TraceReader, from_ns: int | None, to_ns: int | None) -> Window | None:
    """A window relative to the first event as Unix ns."""
    if from_ns is None and to_ns is None:
        return None
    low, high = from_ns or 0, to_ns
    if high is not None and high <= low:
        raise BadInput(f"the window {low}..{high} ns is empty; its end must be after its start")
    first = reader.meta.start_ns or 0
    return first + low, _FAR_FUTURE_NS if high is None else first + high


def _steps(reader: TraceReader, first: int, last: int) -> Window:
    """From the start of a step to the end of another. Steps are numbered by `ProfilerStep#n`, others from 1 on."""
    marks = StepMarks()
    for table in reader.iterate(STEP_COLUMNS, args=False):
        marks.add(table)
    steps = marks.steps(reader)
    if not len(steps):
        raise BadInput(f"--step: {why_none(reader.meta)}")
    number = np.array(steps.numbers)
    chosen = np.flatnonzero((number >= first) & (number <= last))
    if not len(chosen):
        raise BadInput(f"the trace has no step {first}..{last}; its steps are {number.min()}..{number.max()}")
    return int(steps.start[chosen].min()), int(steps.end[chosen].max())

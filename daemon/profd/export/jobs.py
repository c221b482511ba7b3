"""The question `export`.

A format NAME is written by `profd/export/NAME.py`, which has

    def write(reader, out, window, progress, min_duration_ns=0) -> int

It returns the events written. `window` is [from, to) in Unix ns or None for all of the trace, `min_duration_ns`
leaves out what is shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from gzip import GzipFile
from typing import Any, BinaryIO, cast

from profd.errors import BadInput
from profd.export.bundle import write_all
from profd.export.redact import RedactedReader
from profd.model.formats import FORMATS, Format
from profd.query.captured import Captured
from profd.query.part import window_of
from profd.segments.reader import TraceReader
from profd.workers.jobs import Progress, imported


def export(
    trace: TraceReader,
    out: BinaryIO,
    progress: Progress,
    *,
    format: str,  # noqa: A002 - what askers call it
    min_duration_ns: int,
    gzip: bool,
    redact: Sequence[str],
    derived_flows: bool,
    from_ns: int | None,
    to_ns: int | None,
    first_step: int | None,
    last_step: int | None,
) -> int:
    """Write the trace in another format; how many events it has.

    Raises BadInput for an empty window, steps that there are not, or what the format cannot serve.
    """
    form = FORMATS[format]
    packed = _packed(format, form, gzip)
    window = window_of(trace, from_ns, to_ns, first_step, last_step)
    if redact and not form.redacts:
        able = ", ".join(known for known, other in FORMATS.items() if other.redacts)
        raise BadInput(f"--redact does not work with the format {format}; it does with {able}")
    if derived_flows and not form.derives_flows:
        able = ", ".join(known for known, other in FORMATS.items() if other.derives_flows)
        raise BadInput(f"--derived-flows does not work with the format {format}; it does with {able}")
    reader = RedactedReader(trace.directory, redact) if redact else trace
    write = partial(imported(f"profd.export.{format}:write"), **({"derived_flows": True} if derived_flows else {}))
    if not packed:
        return int(write(reader, out, window, progress, min_duration_ns=min_duration_ns))
    # No name and no time in the header: the same trace gives the same bytes.
    with GzipFile("", "wb", compresslevel=3, fileobj=out, mtime=0) as file:
        return int(write(reader, cast(BinaryIO, file), window, progress, min_duration_ns=min_duration_ns))


def export_of_capture(
    capture: Captured,
    out: BinaryIO,
    progress: Progress,
    *,
    format: str,  # noqa: A002 - what askers call it
    **part: Any,
) -> int:
    """Write all traces of a capture, whole, as one archive; how many events they have. BadInput for anything else."""
    if format != "bundle" or any(value not in (None, 0, False, []) for value in part.values()):
        raise BadInput("a capture is exported whole, in the format bundle; for anything else name one of its traces")
    return write_all(capture, out, progress)


def _packed(name: str, form: Format, wanted: bool) -> bool:
    if form.gzips == "never" and wanted:
        raise BadInput(f"a file of the format {name} is compressed already: give it a name without .gz")
    return wanted or form.gzips == "always"

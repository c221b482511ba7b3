"""The question `export`.

A format NAME is written by `profd/export/NAME.py`, which has

    def write(reader, out, window, progress, min_duration_ns=0) -> int

It returns the events written. `window` is [from, to) in Unix ns or None for all of the trace, `min_duration_ns`
leaves out what is shorter. A format that merges has for a capture

    def write_merged(merged, out, progress) -> int
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from gzip import GzipFile
from typing import Any, BinaryIO, cast

from profd.errors import BadInput
from profd.export.bundle import write_all
from profd.export.merged import merged
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
    form = _able(format, redact, derived_flows)
    if not form.of_traces:
        raise BadInput(f"the format {format} is of a capture: name one (`profctl captures`); of a trace write perfetto")
    packed = _packed(format, form, gzip)
    window = window_of(trace, from_ns, to_ns, first_step, last_step)
    reader = RedactedReader(trace.directory, redact) if redact else trace
    write = _writer(format, "write", derived_flows)
    with _file(out, packed) as file:
        return int(write(reader, file, window, progress, min_duration_ns=min_duration_ns))


def export_of_capture(
    capture: Captured,
    out: BinaryIO,
    progress: Progress,
    *,
    format: str,  # noqa: A002 - what askers call it
    min_duration_ns: int,
    gzip: bool,
    redact: Sequence[str],
    derived_flows: bool,
    **part: int | None,
) -> int:
    """Write all traces of a capture, on one axis, or whole as an archive (bundle); how many events they have.

    `part`: `from_ns`, `to_ns`, `first_step`, `last_step`. Raises as `export`, and what the reader of a trace raises.
    """
    if format == "bundle":
        if min_duration_ns or gzip or redact or derived_flows or any(one is not None for one in part.values()):
            raise BadInput("a bundle of a capture is whole, and compressed already: leave out what else is asked for")
        return write_all(capture, out, progress)
    form = _able(format, redact, derived_flows)
    if not form.merges:
        able = _formats(lambda one: one.merges)
        raise BadInput(f"the format {format} is of one trace: name one of the capture's; of a capture there are {able}")
    packed = _packed(format, form, gzip)
    found = merged(capture, min_duration_ns, redact, **part)
    write = _writer(format, "write_merged", derived_flows)
    with _file(out, packed) as file:
        return int(write(found, file, progress))


def _able(name: str, redact: Sequence[str], derived_flows: bool) -> Format:
    """The format. BadInput for what it cannot serve."""
    form = FORMATS[name]
    if redact and not form.redacts:
        able = _formats(lambda one: one.redacts)
        raise BadInput(f"--redact does not work with the format {name}; it does with {able}")
    if derived_flows and not form.derives_flows:
        able = _formats(lambda one: one.derives_flows)
        raise BadInput(f"--derived-flows does not work with the format {name}; it does with {able}")
    return form


def _formats(able: Callable[[Format], bool]) -> str:
    """Names of the formats that can do something, for an error."""
    return ", ".join(name for name, form in FORMATS.items() if able(form))


def _writer(name: str, function: str, derived_flows: bool) -> Callable[..., Any]:
    write = imported(f"profd.export.{name.replace('-', '_')}:{function}")
    return partial(write, **({"derived_flows": True} if derived_flows else {}))


@contextmanager
def _file(out: BinaryIO, packed: bool) -> Iterator[BinaryIO]:
    """Where a writer writes to."""
    if not packed:
        yield out
        return
    # No name and no time in the header: the same trace gives the same bytes.
    with GzipFile("", "wb", compresslevel=3, fileobj=out, mtime=0) as file:
        yield cast(BinaryIO, file)


def _packed(name: str, form: Format, wanted: bool) -> bool:
    if form.gzips == "never" and wanted:
        raise BadInput(f"a file of the format {name} is compressed already: give it a name without .gz")
    return wanted or form.gzips == "always"

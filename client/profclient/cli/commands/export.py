"""`profctl export`."""

from __future__ import annotations

import secrets
import shlex
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import click

from profclient.cli.backend import traces
from profclient.cli.captured_view import say_of_traces
from profclient.cli.merged_file import say_of_merged
from profclient.cli.options import json_option, part_options, part_query, warn_if_beyond
from profclient.cli.output import emit_json, say
from profclient.cli.units import size
from profclient.errors import UsageError
from profclient.layout import write_capture
from profclient.merged_head import MERGED, Head
from profclient.traces import is_capture

OPENS_WITH = {
    "chrome": "open it at https://ui.perfetto.dev or chrome://tracing, or `profctl open`",
    "perfetto": "open it at https://ui.perfetto.dev",
    "perfetto-archive": "Perfetto merges it from its version 58 on: open it at https://ui.perfetto.dev",
    "folded": "flamegraph.pl FILE > flame.svg draws it, as `profctl flame` does by itself",
    "speedscope": "open it at https://www.speedscope.app",
    "pprof": "go tool pprof -http=: FILE shows it",
    "parquet": "duckdb -c \"select name, sum(duration_ns) from 'FILE' group by 1\", or pandas.read_parquet",
    "xspace": "xprof --logdir DIR, where FILE is DIR/plugins/profile/NAME/HOST.xplane.pb",
    "bundle": "`profctl import FILE` reads it elsewhere",
}


@click.command()
@click.argument("trace", default="")
@click.option(
    "-f",
    "--format",
    "format_",
    type=click.Choice(tuple(OPENS_WITH)),
    default="chrome",
    help="Format of the file. bundle: for a colleague with profctl. Of a capture: chrome, perfetto, perfetto-archive "
    "(a file for each trace, for Perfetto 58 or later), or parquet with --to.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=None,
    help="File to write. Without it, or with -: stdout.",
)
@click.option(
    "--derived-flows",
    is_flag=True,
    help="Add arrows from forward to backward operators to a trace without recorded ones. For chrome.",
)
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Of a capture, with -f parquet: write all of its traces into this directory.",
)
@part_options
@json_option
def export(
    trace: str,
    format_: str,
    output: Path | None,
    derived_flows: bool,
    to: Path | None,
    window: str | None,
    step: str | None,
    min_duration: str | None,
    redact: str | None,
    as_json: bool,
) -> None:
    """Write a trace for another tool, or all traces of a capture. A file name that ends in .gz makes a compressed file.

    Times of all ranks of a capture are on one axis: clocks are compared by collectives, as `profctl ranks` does. Each
    rank has processes of its own. What a clock may be wrong by is said, and stands in the file.

    \b
      profctl export -f chrome -o trace.json
      profctl export c0123456789ab -f perfetto -o ranks.pftrace
      profctl export c0123456789ab -f perfetto-archive -o ranks.tar

    With -f parquet --to DIR a capture is written as the store has it, a directory for each trace. Any engine reads
    DIR/capture=ID/host=HOST/rank=RANK/trace=TRACE/, and so does profctl --store DIR.
    """
    part = part_query(window, step, min_duration, redact)
    whole = is_capture(trace)
    if to is not None or (whole and format_ not in MERGED):
        _write_capture(trace, _checked(trace, format_, to, output, derived_flows, part), as_json)
        return
    file = None if output is None or str(output) == "-" else output
    if file is None:
        _check_stdout(as_json)
    # pprof's files are always compressed, whatever they are called.
    gzip = file is not None and str(file).endswith(".gz")
    with traces() as source:
        if part["from_ns"] is not None and not whole:
            warn_if_beyond(found := source.get(trace), part)
            trace = found["id"]
        asked = source.ask("export", trace, format=format_, gzip=gzip, derived_flows=derived_flows or None, **part)
        pieces = Head(asked)
        written = copy(pieces, sys.stdout.buffer) if file is None else into_file(pieces, file)
    about = pieces.about(format_, gzip=gzip) if whole else None
    if as_json:
        emit_json({"file": str(file), "format": format_, "bytes": written, **(about or {})})
        return
    if about is not None:
        say_of_merged(about)
    elif whole:
        say("The file does not begin as it should: what its clocks may be wrong by is not known.")
    if file is not None:
        say(f"{file}: {size(written)}; {OPENS_WITH[format_]}")


def _check_stdout(as_json: bool) -> None:
    if as_json:
        raise UsageError("--json says what was written, and where: name a file with -o FILE.")
    if sys.stdout.isatty():
        raise UsageError("that would fill your terminal; name a file with -o FILE.")


def _checked(
    trace: str, format_: str, to: Path | None, output: Path | None, derived_flows: bool, part: dict[str, Any]
) -> Path:
    """The folder for a capture. UsageError for options that do not go together."""
    if not is_capture(trace):
        raise UsageError("--to writes all traces of a capture; name one (`profctl captures`).")
    if to is None or format_ != "parquet" or output is not None:
        raise UsageError(
            f"a capture is written by -f {', '.join(MERGED)} (-o FILE), or by -f parquet --to DIR; for other formats "
            "name one of its traces."
        )
    if derived_flows or any(part.values()):
        raise UsageError("--to writes whole traces: leave out the options that choose a part, or change it.")
    return to


def _write_capture(capture: str, to: Path, as_json: bool) -> None:
    with traces() as source:
        answer = source.ask("traces", capture).value()
        bundle = source.ask("export", answer["capture"], format="bundle")
        folder, written = write_capture(to, answer["capture"], answer["traces"], iter(bundle))
    if as_json:
        emit_json({"file": str(folder), "format": "parquet", "bytes": written, **answer})
        return
    say_of_traces(answer)
    say(f"{folder}: {size(written)}; profctl --store {shlex.quote(str(to))} top {answer['capture']} reads it")


def into_file(pieces: Iterable[bytes], output: Path) -> int:
    """Whole or not at all: a half-written trace would look like a broken one. UsageError for what is no file."""
    _check_replaceable(output)
    partial = output.with_name(f".{output.name}.{secrets.token_hex(8)}.part")
    try:
        # New, and of a name that nobody knows: in a directory of others a link of theirs could lie there.
        with partial.open("xb") as file:
            written = copy(pieces, file)
        partial.replace(output)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)
    return written


def _check_replaceable(output: Path) -> None:
    """A file takes the place of what has this name: root's `-o /dev/null` would take that from the whole host."""
    try:
        mode = output.lstat().st_mode
    except OSError:  # there is none, or the attempt to write says why
        return
    of_system = output.parent.resolve().parts[:2] in (("/", "dev"), ("/", "proc"))
    if not (stat.S_ISREG(mode) or (stat.S_ISLNK(mode) and not of_system)):
        raise UsageError(f"{output} is no file, and none takes its place: leave -o out, and redirect with > {output}")


def copy(pieces: Iterable[bytes], out: BinaryIO) -> int:
    """Write all of them; returns the bytes."""
    written = 0
    for piece in pieces:
        out.write(piece)
        written += len(piece)
    out.flush()
    return written

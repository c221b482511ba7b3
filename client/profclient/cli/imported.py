"""What a question about a capture is asked of: its id, or files of all ranks, which become a capture first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from profclient.cli.output import say
from profclient.errors import ClientError, UsageError
from profclient.traces import Traces


def asked_of(source: Traces, given: Sequence[str]) -> str:
    """The id to ask: of what is given, else the capture of the latest trace.

    UsageError for several things of which one is no file, and where the latest trace is of no capture.
    """
    if not given:
        latest = source.get("")
        if not latest["capture"]:
            raise UsageError(f"your latest trace, {latest['id']}, is of no capture: `profctl captures` lists captures.")
        return str(latest["capture"])
    files = [Path(one) for one in given]
    there = [one for one in files if one.is_file()]
    if not there:
        if len(given) > 1:
            raise UsageError(f"{given[0]} is no file: name one capture, or the trace files of all ranks of a job.")
        return given[0]
    if len(there) < len(files):
        missing = next(one for one in files if one not in there)
        raise UsageError(f"{missing} is no file: name one capture, or the trace files of all ranks of a job.")
    (capture,) = {str(trace["capture"]) for trace in imported(source, files, together=True)}
    say(f"They are the capture {capture}: `profctl rm` takes its traces away again.")
    return capture


def say_whose_rank(source: Traces, question: str, trace: str) -> None:
    """Where the latest trace is asked, and is that of a rank: how to ask of all ranks."""
    if trace:
        return
    latest = source.get("")
    if latest["capture"] and latest["rank"] is not None:
        say(
            f"{latest['id']} is that of rank {latest['rank']} alone: `profctl {question} {latest['capture']}` asks of "
            "all ranks that were recorded with it."
        )


def imported(
    source: Traces, files: Sequence[Path], dialect: str = "", *, together: bool, quiet: bool = False
) -> Iterator[dict[str, Any]]:
    """Import files one by one, `together` as one capture: the traces. ClientError names the file that it is about."""
    capture = "new" if together else ""
    for path in files:
        if not quiet:
            say(f"importing {path} …")
        try:
            trace = source.import_file(path, dialect, capture)
        except ClientError as error:
            error.args = (f"{path}: {error}",)
            raise
        if together and not trace["capture"]:
            raise UsageError("this daemon cannot import several files as one capture: upgrade it.")
        capture = trace["capture"] if together else ""
        yield trace

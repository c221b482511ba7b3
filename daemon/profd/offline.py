"""The verbs on stored traces without a daemon: `python -m profd.offline VERB --store DIR`.

`profctl --store DIR …` runs exactly this. The request is one JSON object on
stdin (absent keys mean their defaults), the answer is one JSON value on
stdout, for `tree`, `export`, `steps`, `gpu`, `timeline`, `diff` and `sql` the bytes themselves. Ids may be prefixes;
empty means the latest. A trace is an object with the fields of
`profproto/v1/trace.proto`, absent is null.

    VERB      request                                           answer
    list      {"limit"}                                         [trace, …], newest first
    get       {"id"}                                            trace
    summary   {"id"}                                            the summary, the trace under "trace"
    top       {"id", "limit", "sort_by", "raw",                 [row, …] as of `profctl top --json`
               "group_by_input_shape", "group_by_stack_n",
               "group_by", "with_backward"}
    tree      {"id", "max_depth", "from_row"}                   JSON lines
    export    {"id", "format", "from_ns", "to_ns",              the file
               "min_duration_ns", "gzip", "redact",
               "first_step", "last_step"}
    steps     {"id"}                                            JSON as of `profctl steps --json`
    gpu       {"id"}                                            JSON as of `profctl gpu --json`
    timeline  {"id", "lines": [kind, …], "rules"}               JSON lines as of `profctl timeline --json`
    diff      {"id", "other", "by"}                             JSON as of `profctl diff --json`
    sql       {"id", "sql", "limit"}                            JSON as of `profctl sql --json`
    evictions {"bytes"}                                         JSON as of `profctl store evictions --json`
    import    {"path", "format", "dialect"}                     trace
    rm        {"id"}                                            {"id"}
    pin       {"id"}                                            trace
    unpin     {"id"}                                            trace
    share     {"id", "with": [user, …]}                         trace
    rebuild   {}                                                {"traces": count, "damaged": [sentence, …]}

The exit code is that of the error; it is told as one line of JSON on stderr,
`{"error": sentence, "kind": word}`, kinds as in `profclient/errors.py`.
Progress of an import is told there, too: `{"progress": what, "share": 0..1}`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pwd
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from profd.errors import BadInput, JobFailed, NotFound, ProfdError
from profd.limits import RPC_MESSAGE_BYTES_MAX
from profd.store.catalog import TraceRecord
from profd.store.ingest import OnProgress, format_of, open_raw
from profd.store.library import Library
from profd.store.lock import OFFLINE_WAIT_SECONDS, StoreLock
from profd.store.store import Store, StoreLimits
from profd.trust.caller import Caller
from profd.workers.jobs import find

_KINDS: Final = {1: "failure", 2: "usage", 3: "not_found", 4: "denied", 5: "busy"}
_STDOUT: Final = 1


class Request:
    """What was asked, checked key by key."""

    def __init__(self, text: bytes) -> None:
        """BadInput unless the text is a JSON object."""
        try:
            values = json.loads(text or b"{}")
        except (ValueError, RecursionError) as error:
            raise BadInput(f"The request is not JSON: {error}.") from error
        if not isinstance(values, dict):
            raise BadInput("The request must be a JSON object.")
        self._values = values

    def text(self, key: str, default: str = "") -> str:
        """A string."""
        value = self._values.get(key, default)
        if not isinstance(value, str):
            raise BadInput(f"{key!r} must be a string.")
        return value

    def number(self, key: str) -> int:
        """An integer; 0 when absent."""
        return self.maybe_number(key) or 0

    def maybe_number(self, key: str) -> int | None:
        """An integer or None."""
        value = self._values.get(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise BadInput(f"{key!r} must be an integer.")
        return value

    def flag(self, key: str) -> bool:
        """A boolean; false when absent."""
        value = self._values.get(key, False)
        if not isinstance(value, bool):
            raise BadInput(f"{key!r} must be true or false.")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of strings; empty when absent."""
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise BadInput(f"{key!r} must be a list of strings.")
        return value


async def run_here(
    job: str, args: dict[str, Any], fds: Sequence[int] = (), on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """Run a job in this process, with the contract of `WorkerPool.run`."""
    try:
        return find(job)(args, [*fds], on_progress or _silent)
    except (ProfdError, BrokenPipeError):
        raise
    except Exception as error:
        raise JobFailed(f"the job {job!r} failed: {type(error).__name__}: {error}") from error


def _silent(what: str, share: float) -> None:
    """No progress is asked for."""


def _told(what: str, share: float) -> None:
    print(json.dumps({"progress": what, "share": share}), file=sys.stderr, flush=True)


async def _list(library: Library, me: Caller, request: Request) -> object:
    return [_trace(record) for record in await library.list(me, request.number("limit"))]


async def _get(library: Library, me: Caller, request: Request) -> object:
    return _trace(await library.get(me, request.text("id")))


async def _summary(library: Library, me: Caller, request: Request) -> object:
    record, summary = await library.summary(me, request.text("id"))
    return {**summary, "trace": _trace(record)}


async def _top(library: Library, me: Caller, request: Request) -> object:
    rows = await library.key_averages(
        me,
        request.text("id"),
        limit=request.number("limit"),
        sort_by=request.text("sort_by"),
        group_by_input_shape=request.flag("group_by_input_shape"),
        group_by_stack_n=request.number("group_by_stack_n"),
        raw=request.flag("raw"),
        group_by=request.text("group_by"),
        with_backward=request.flag("with_backward"),
    )
    return [{**row, "input_shapes": json.loads(row.get("input_shapes") or "null")} for row in rows]


async def _tree(library: Library, me: Caller, request: Request) -> None:
    depth, row = request.number("max_depth"), request.maybe_number("from_row")
    await library.tree(me, request.text("id"), _STDOUT, max_depth=depth, from_row=row)


async def _export(library: Library, me: Caller, request: Request) -> None:
    await library.export(
        me,
        request.text("id"),
        _STDOUT,
        form=request.text("format", "chrome"),
        from_ns=request.maybe_number("from_ns"),
        to_ns=request.maybe_number("to_ns"),
        min_duration_ns=request.number("min_duration_ns"),
        gzip=request.flag("gzip"),
        redact=request.texts("redact"),
        first_step=request.maybe_number("first_step"),
        last_step=request.maybe_number("last_step"),
    )


async def _steps(library: Library, me: Caller, request: Request) -> None:
    await library.steps(me, request.text("id"), _STDOUT)


async def _gpu(library: Library, me: Caller, request: Request) -> None:
    await library.gpu(me, request.text("id"), _STDOUT)


async def _timeline(library: Library, me: Caller, request: Request) -> None:
    await library.timeline(me, request.text("id"), _STDOUT, lines=request.texts("lines"), rules=request.text("rules"))


async def _diff(library: Library, me: Caller, request: Request) -> None:
    ids = request.text("id"), request.text("other")
    await library.diff(me, *ids, _STDOUT, by=request.text("by"))


async def _sql(library: Library, me: Caller, request: Request) -> None:
    await library.sql(me, request.text("id"), request.text("sql"), _STDOUT, limit=request.number("limit"))


async def _evictions(library: Library, me: Caller, request: Request) -> object:
    preview, gone = await library.evictions(me, request.number("bytes"))
    return {
        "limit_bytes": preview.limit,
        "stored_bytes": preview.stored,
        "share_bytes": preview.share,
        "own_bytes": preview.own,
        "own_pinned_bytes": preview.own_pinned,
        "traces": [_trace(record) for record in gone],
        "others": len(preview.gone) - len(gone),
        "refusal": preview.refusal,
    }


async def _import(library: Library, me: Caller, request: Request) -> object:
    path = Path(request.text("path"))
    form = format_of(request.text("dialect")) or request.text("format")
    fd = open_raw(path.resolve())  # the caller's own file, by the caller's own rights: links are fine
    try:
        return _trace(await library.import_file(me, fd, path.name, form, _told))
    finally:
        os.close(fd)


async def _rm(library: Library, me: Caller, request: Request) -> object:
    return {"id": await library.delete(me, request.text("id"))}


async def _pin(library: Library, me: Caller, request: Request) -> object:
    return _trace(await library.pin(me, request.text("id"), True))


async def _unpin(library: Library, me: Caller, request: Request) -> object:
    return _trace(await library.pin(me, request.text("id"), False))


async def _share(library: Library, me: Caller, request: Request) -> object:
    return _trace(await library.share(me, request.text("id"), request.texts("with")))


async def _rebuild(library: Library, me: Caller, request: Request) -> object:
    traces, damaged = library.store.rebuild()
    return {"traces": traces, "damaged": damaged}


Verb = Callable[[Library, Caller, Request], Coroutine[Any, Any, object]]

# Those that only read let go of the store once it is open: several may run at a time.
_READING: Final[dict[str, Verb]] = {
    "list": _list,
    "get": _get,
    "summary": _summary,
    "top": _top,
    "tree": _tree,
    "export": _export,
    "steps": _steps,
    "gpu": _gpu,
    "timeline": _timeline,
    "diff": _diff,
    "sql": _sql,
    "evictions": _evictions,
}
_WRITING: Final[dict[str, Verb]] = {
    "import": _import,
    "rm": _rm,
    "pin": _pin,
    "unpin": _unpin,
    "share": _share,
    "rebuild": _rebuild,
}


def _trace(record: TraceRecord) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(record)
    for internal in ("start_ticks", "truncated"):
        del values[internal]
    values["shared_with"] = list(values.pop("readers"))
    return values


def _caller() -> Caller:
    """Ourselves. Who can open the directory may do everything in it: the files are the access rule."""
    uid, gid = os.getuid(), os.getgid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return Caller(uid, gid, user, admin=True, pid=os.getpid(), groups=tuple(os.getgroups()))


def _open(root: Path, verb: str) -> Store:
    if verb != "import" and not (root / "traces").is_dir():
        raise NotFound(f"There is no store in {root}: name the daemon's state directory, or import a file first.")
    root.mkdir(mode=0o750, parents=True, exist_ok=True)
    return Store(root, StoreLimits(free_share_min=0.0, uid_share=1.0), StoreLock(root, "offline", OFFLINE_WAIT_SECONDS))


def run(verb: str, root: Path, request: Request) -> object:
    """Do it; the answer, or None where it went to stdout. Raises ProfdError."""
    store = _open(root, verb)
    try:
        if verb in _READING:
            store.unlock()
        return asyncio.run((_READING | _WRITING)[verb](Library(store, run_here), _caller(), request))
    finally:
        store.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code; see the module."""
    parser = argparse.ArgumentParser(prog="python -m profd.offline", description="Verbs on a store, without a daemon.")
    parser.add_argument("verb", choices=[*_READING, *_WRITING])
    parser.add_argument("--store", type=Path, required=True, metavar="DIR")
    options = parser.parse_args(arguments)
    try:
        request = Request(sys.stdin.buffer.read(RPC_MESSAGE_BYTES_MAX))
        answer = run(options.verb, options.store, request)
        if answer is not None:
            print(json.dumps(answer), flush=True)
    except ProfdError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # Whoever read has seen enough. Nothing is to be flushed into the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
        return 1
    except OSError as error:
        return _fail(f"{error.filename or options.store}: {error.strerror}.", 1)
    except KeyboardInterrupt:
        return 130
    return 0


def _fail(message: str, code: int) -> int:
    print(json.dumps({"error": message, "kind": _KINDS[code]}), file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

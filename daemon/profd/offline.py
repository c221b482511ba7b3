"""The verbs on stored traces without a daemon: `python -m profd.offline VERB --store DIR`.

`profctl --store DIR …` runs exactly this. The request is one JSON object on
stdin (absent keys mean their defaults), the answer is one JSON value on
stdout, where a question's is streamed the bytes themselves. Ids may be prefixes; empty means the latest. A trace is
an object with the fields of `profproto/v1/trace.proto`, absent is null.

    VERB      request                                           answer
    list      {"limit"}                                         [trace, …], newest first
    get       {"id"}                                            trace
    QUESTION  {"id", argument: value, …}                        as of `profctl QUESTION --json`; the names, arguments
                                                                and limits are in `questions/table.py`. "capture" in
                                                                the place of "id": all traces of it
    files     {"id" or "capture", "check"}                      [{"rank", "host", "trace", "path"}, …] with the events;
                                                                check: an exported capture is read and compared
    evictions {"bytes"}                                         JSON as of `profctl store evictions --json`
    import    {"path", "format", "dialect", "capture"}                     trace
    rm        {"id"}                                            {"id"}
    pin       {"id"}                                            trace
    unpin     {"id"}                                            trace
    share     {"id", "with": [user, …]}                         trace
    rebuild   {}                                                {"traces": count, "damaged": [sentence, …]}
    upgrade   {}                                                {"anew": [id, …], "others": count, "damaged": as above}

The exit code is that of the error; it is told as one line of JSON on stderr,
`{"error": sentence, "kind": word}`, kinds as in `profclient/errors.py`.
Progress of an import is told there, too: `{"progress": what, "share": 0..1}`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import pwd
import select
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from profclient.owners import open_above, others_write

from profd.errors import BadInput, Denied, JobFailed, NotFound, ProfdError
from profd.importing.ingest import OnProgress, RunJob, format_of, open_raw
from profd.kernel.identity import SAME, WorkerIdentity
from profd.limits import RPC_MESSAGE_BYTES_MAX
from profd.model.arguments import Flag, Integer, Text, Texts
from profd.model.question import Scope
from profd.questions.jobs import DIRECTORIES, INDEXES, JOBS
from profd.questions.library import Library
from profd.questions.reading import ReadLibrary
from profd.questions.table import QUESTIONS
from profd.store.cached import CachedRollups, cache
from profd.store.catalog import CATALOG_FILE
from profd.store.exported import ExportedStore
from profd.store.lock import OFFLINE_WAIT_SECONDS, StoreLock
from profd.store.store import Store, StoreLimits
from profd.store.upgrade import upgrade
from profd.trust.caller import Caller
from profd.workers import calls, jobs, landlock
from profd.workers.alone import Alone

_KINDS: Final = {1: "failure", 2: "usage", 3: "not_found", 4: "denied", 5: "busy"}
_STDOUT: Final = 1
_JOBS: Final = {**JOBS, "rewrite": "profd.segments.rewrite:rewrite"}
_ASK_ITS_OWNER: Final = (
    "have its owner share the trace (`profctl share`) or export it (`profctl export -f bundle`), or run this as that "
    "user."
)

Verb = Callable[[Library, Caller, "Request"], Coroutine[Any, Any, object]]
ReadVerb = Callable[[ReadLibrary, Caller, "Request"], Coroutine[Any, Any, object]]


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

    def text(self, key: str) -> str:
        """A string; empty when absent."""
        return Text(key, "", most=None).checked(self._values.get(key, ""))

    def flag(self, key: str) -> bool:
        """True or false; false when absent."""
        return Flag(key, "").checked(self._values.get(key) or False)

    def maybe(self, key: str) -> str | None:
        """A string; None when absent."""
        return self.text(key) if self._values.get(key) is not None else None

    def number(self, key: str) -> int:
        """An integer; 0 when absent."""
        return Integer(key, "").checked(self._values.get(key) or 0)

    def texts(self, key: str) -> list[str]:
        """A list of strings; empty when absent."""
        return Texts(key, "", most=None).checked(self._values.get(key, []))

    def others(self, *keys: str) -> dict[str, object]:
        """The values of all keys but these."""
        return {key: value for key, value in self._values.items() if key not in keys}


async def run_here(
    job: str, args: dict[str, Any], fds: Sequence[int] = (), on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """Run a job in this process, with the contract of `WorkerPool.run`."""
    try:
        return jobs.find(job, _JOBS)(args, [*fds], on_progress or _silent)
    except (ProfdError, BrokenPipeError):
        raise
    except Exception as error:
        raise JobFailed(f"the job {job!r} failed: {type(error).__name__}: {error}") from error


def _runner(store: Store | ExportedStore, owner: WorkerIdentity = SAME) -> RunJob:
    """How jobs run: root's behind the confinement of workers, as bytes of other users would have its rights.

    Where the kernel offers no such confinement, root reads a store that has traces of its own alone all the same.
    """
    confined = landlock.abi() > 0 and calls.known()
    if os.geteuid() != 0 or not (confined or any(record.owner_uid for record in store.newest_first(-1))):
        return run_here
    return Alone(_JOBS, [*DIRECTORIES, *INDEXES], owner).run


def _silent(what: str, share: float) -> None:
    """No progress is asked for."""


def _told(what: str, share: float) -> None:
    print(json.dumps({"progress": what, "share": share}), file=sys.stderr, flush=True)


async def _list(library: ReadLibrary, me: Caller, request: Request) -> object:
    return [record.as_json() for record in await library.list(me, request.number("limit"))]


async def _get(library: ReadLibrary, me: Caller, request: Request) -> object:
    record = await library.get(me, request.text("id"))
    return record.as_json()


def _asking(question: str) -> ReadVerb:
    async def ask(library: ReadLibrary, me: Caller, request: Request) -> object:
        # What is no request needs no trace to be refused.
        capture, others = request.maybe("capture"), request.others("id", "capture")
        values = QUESTIONS[question].checked(others, Scope.TRACE if capture is None else Scope.CAPTURE)
        asked = await library.asked(me, question, request.text("id"), values, capture)
        return await library.answer(asked, -1 if asked.question.with_record else _STDOUT)

    return ask


async def _files(library: ReadLibrary, me: Caller, request: Request) -> object:
    files = await library.files(me, request.text("id"), request.maybe("capture"))
    if request.flag("check"):
        library.check(dict.fromkeys(record.id for record, _ in files))
    return [
        {"rank": one.rank, "host": one.host or None, "trace": one.id, "path": str(path.absolute())}
        for one, path in files
    ]


async def _evictions(library: Library, me: Caller, request: Request) -> object:
    preview, gone = await library.evictions(me, request.number("bytes"))
    return {
        "limit_bytes": preview.limit,
        "stored_bytes": preview.stored,
        "share_bytes": preview.share,
        "own_bytes": preview.own,
        "own_pinned_bytes": preview.own_pinned,
        "traces": [record.as_json() for record in gone],
        "more": preview.more,
        "others": preview.others,
        "refusal": preview.refusal,
    }


async def _import(library: Library, me: Caller, request: Request) -> object:
    path = Path(request.text("path"))
    form = format_of(request.text("dialect")) or request.text("format")
    fd = open_raw(path.resolve())  # the caller's own file, by the caller's own rights: links are fine
    try:
        record = await library.import_file(me, fd, path.name, form, _told, request.text("capture"))
        return record.as_json()
    finally:
        os.close(fd)


async def _rm(library: Library, me: Caller, request: Request) -> object:
    return {"id": await library.delete(me, request.text("id"))}


async def _pin(library: Library, me: Caller, request: Request) -> object:
    record = await library.pin(me, request.text("id"), True)
    return record.as_json()


async def _unpin(library: Library, me: Caller, request: Request) -> object:
    record = await library.pin(me, request.text("id"), False)
    return record.as_json()


async def _share(library: Library, me: Caller, request: Request) -> object:
    record = await library.share(me, request.text("id"), request.texts("with"))
    return record.as_json()


async def _rebuild(library: Library, me: Caller, request: Request) -> object:
    traces, damaged = library.store.rebuild()
    return {"traces": traces, "damaged": damaged}


async def _upgrade(library: Library, me: Caller, request: Request) -> object:
    loop, run_job = asyncio.get_running_loop(), _runner(library.store)

    def rewrite(trace: Path, staging: Path) -> None:
        job = run_job("rewrite", {"trace_dir": str(trace), "staging": str(staging)})
        asyncio.run_coroutine_threadsafe(job, loop).result()

    return asdict(await asyncio.to_thread(upgrade, library.store, rewrite))


_ASKING: Final[dict[str, ReadVerb]] = {
    "list": _list,
    "get": _get,
    "files": _files,
    **{question.name: _asking(question.name) for question in QUESTIONS.values() if question.offline},
}
# Verbs that only read let go of the store once it is open: several may run at a time.
_READING: Final[dict[str, Verb]] = {**_ASKING, "evictions": _evictions}
_WRITING: Final[dict[str, Verb]] = {
    "import": _import,
    "rm": _rm,
    "pin": _pin,
    "unpin": _unpin,
    "share": _share,
    "rebuild": _rebuild,
    "upgrade": _upgrade,
}


def _caller() -> Caller:
    """Ourselves. A user who can open the directory may do everything in it: the files are the access rule."""
    uid, gid = os.getuid(), os.getgid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return Caller(uid, gid, user, admin=True, pid=os.getpid(), groups=tuple(os.getgroups()))


def _open(root: Path, verb: str) -> Store:
    if verb != "import" and not _is_store(root):
        raise NotFound(f"There is no store in {root}: name the daemon's state directory, or import a file first.")
    root.mkdir(mode=0o750, parents=True, exist_ok=True)
    _check_owners(root)
    lock = StoreLock(root, "offline", OFFLINE_WAIT_SECONDS)
    return Store(root, StoreLimits(free_share_min=0.0, uid_share=1.0), lock, CachedRollups(cache()))


def _check_owners(root: Path) -> None:
    """Denied where another user may have put links: opening a store writes in it, and removes leftovers by name."""
    if others_write(str(root)):
        raise Denied(
            f"Other users may write into {root}, so what lies there is no store to open. Look at what is in it, then: "
            f"chmod go-w {root}. Or {_ASK_ITS_OWNER}"
        )
    places = (root, root / "traces", root / "records", root / "records" / "traces", root / CATALOG_FILE)
    for place in places:
        with contextlib.suppress(FileNotFoundError):
            if (owner := place.lstat().st_uid) not in (0, os.geteuid()):
                raise Denied(f"{place} belongs to uid {owner}, who could have led it anywhere: {_ASK_ITS_OWNER}")
    if os.geteuid() == 0 and (above := open_above(str(root))):
        raise Denied(f"Another user can put anything in the place of {root}, by {above}: {_ASK_ITS_OWNER}")


def _is_store(root: Path) -> bool:
    return (root / "traces").is_dir()


def _run_on_exported(verb: str, root: Path, request: Request) -> object:
    if verb not in _ASKING:
        raise BadInput(f"{root} has exported captures, which are only read: `{verb}` needs a store.")
    found = root.stat()
    # Of another user's traces nothing is kept: root's cache is out of that user's reach.
    strange = os.geteuid() == 0 and found.st_uid != 0
    store = ExportedStore(root, CachedRollups(None if strange else cache()))
    owner = WorkerIdentity(found.st_uid, found.st_gid) if strange else SAME
    library = ReadLibrary(store, _runner(store, owner))
    return asyncio.run(_ASKING[verb](library, _caller(), request))


def run(verb: str, root: Path, request: Request) -> object:
    """Do it; the answer, or None where it went to stdout. Raises ProfdError."""
    root = root.resolve()  # workers are at home elsewhere, and links on the way may be another's
    if not _is_store(root) and ExportedStore.is_one(root):
        return _run_on_exported(verb, root, request)
    store = _open(root, verb)
    try:
        if verb in _READING:
            store.unlock()
        return asyncio.run((_READING | _WRITING)[verb](Library(store, _runner(store)), _caller(), request))
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
        return 1 if _nobody_reads() else _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader has seen enough. Nothing is to be flushed into the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
        return 1
    except OSError as error:
        return _fail(f"{error.filename or options.store}: {error.strerror}.", 1)
    except KeyboardInterrupt:
        return 130
    return 0


def _nobody_reads() -> bool:
    """A worker tells a closed pipe as any failure."""
    pipe = select.poll()
    pipe.register(_STDOUT, 0)
    return any(events & select.POLLERR for _, events in pipe.poll(0))


def _fail(message: str, code: int) -> int:
    print(json.dumps({"error": message, "kind": _KINDS[code]}), file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

"""State directories that earlier builds have left (tests/corpus/states), and all that a daemon of now says of one.

    with unpacked("under-way") as folder:      # folder/state, and folder/target where targets wrote
        daemon = start_daemon(folder)
    assert missing(expected("under-way"), recover("under-way")) == []

State holds absolute paths (raw files in the records of captures, folders of targets). In an archive they begin with
`@ROOT@`, which becomes the folder that it is unpacked to.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import people
from tests.support.daemon import ONE_WORKER, RunningDaemon, start_daemon
from tests.support.waiting import until

STATES = Path(__file__).parents[1] / "corpus" / "states"
ROOT = "@ROOT@"
TEXTS = ("*.json", "*.jsonl")  # what may hold paths

TOP = 5  # names that take the most time

QUESTIONS = {
    "events": "select row, name, kind, cat, phase, start_ns, end_ns, start_ps, end_ps, process, thread, end_thread, "
    "device_type, device, context, stream, correlation, external, linked, sequence, fwd_thread, scope, is_async, "
    "debug_handle, parent, depth, self_ns, stack, module, inputs, bytes, ptr, total_allocated, total_reserved, value, "
    "flops, weight, duration_ns, op from events order by row",
    "args": "select row, key, value, number from args order by all",
    "flows": "select id, category, name, phase, enclosing, thread, time_ns, row from flows order by all",
    "threads": "select thread, process, id, name from threads order by thread",
    "processes": "select process, id, name, labels from processes order by process",
}
"""Every column of a trace: some may be added, but these stay, and what is in them."""


def names() -> list[str]:
    """Of all archives."""
    return sorted(path.name.removesuffix(".tar.xz") for path in STATES.glob("*.tar.xz"))


def expected(name: str) -> dict[str, Any]:
    """What the daemon that wrote it, or the one of that day, has made of it."""
    text = (STATES / f"{name}.json").read_text()
    found: dict[str, Any] = json.loads(_owned(text))
    return found


@contextmanager
def unpacked(name: str, *, open_to_all: bool = False) -> Iterator[Path]:
    """A folder with a short path; gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="pd-", dir="/tmp"))
    try:
        unpack(STATES / f"{name}.tar.xz", folder)
        if open_to_all:
            folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack it there. Times are those of now: a journal sweeps what is a day old."""
    now = int(time.time())
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            member.mtime = now
        tar.extraction_filter = lambda member, _path: member  # not an argument: 3.11.2, Debian's, knows none
        tar.extractall(folder)
    for path in _texts(folder):
        text = path.read_text()
        changed = text.replace(ROOT, str(folder))
        changed = _owned(changed)
        if changed != text:
            path.write_text(changed)
    if os.getuid():
        for path in folder.glob("state/catalog.sqlite*"):
            path.unlink()


def _owned(text: str) -> str:
    """What root has written for itself is that of whoever looks."""
    return re.sub(r'"(owner_uid|uid)": ?0\b', rf'"\1":{os.getuid()}', text) if os.getuid() else text


def pack(folder: Path, archive: Path) -> None:
    """The opposite. Sockets and locks are left out."""
    for path in _texts(folder):
        text = path.read_text()
        if str(folder) in text:
            path.write_text(text.replace(str(folder), ROOT))

    def wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if member.name.endswith((".lock", "-shm")):
            return None
        return member.replace(mtime=0, uname="", gname="", deep=False)

    with tarfile.open(archive, "w:xz", preset=9, format=tarfile.GNU_FORMAT) as tar:
        for part in ("state", "target"):
            if (folder / part).exists():
                tar.add(folder / part, part, filter=wanted)


def _texts(folder: Path) -> Iterator[Path]:
    for pattern in TEXTS:
        for path in sorted(folder.rglob(pattern)):
            if path.is_file() and not path.is_symlink():
                yield path


def profctl(daemon: RunningDaemon, *arguments: str) -> tuple[int, str, str]:
    """The console script, in this process: its exit code and what it printed."""
    [script] = importlib.metadata.entry_points(group="console_scripts", name="profctl")
    out, err = io.StringIO(), io.StringIO()
    before = dict(os.environ)
    os.environ |= {"PROFD_ADDRESS": f"unix:{daemon.socket}"}
    argv, code = sys.argv, 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sys.argv = ["profctl", *arguments]
            script.load()()
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        sys.argv = argv
        os.environ.clear()
        os.environ |= before
    return code, out.getvalue(), err.getvalue()


def told(daemon: RunningDaemon, *arguments: str) -> Any:
    """What `profctl … --json` prints; the error of one that fails."""
    code, out, err = profctl(daemon, *arguments, "--json")
    return json.loads(out) if code == 0 else {"exit": code, "error": _error(err)}


def _error(err: str) -> str:
    try:
        return str(json.loads(err.splitlines()[-1])["error"])
    except (ValueError, KeyError, IndexError):
        return err


def look(daemon: RunningDaemon, known: Collection[str], *, closely: bool = False) -> dict[str, Any]:
    """Captures, traces and, `closely`, what can be asked of each trace; and what lies about.

    `known`: traces, and captures that had ended, of before. Of what is new, ids and times are left out, and of
    sentences only what they promise is kept: their words may become better ones.
    """
    captures = told(daemon, "captures")
    traces = told(daemon, "list")
    aliases = {trace["id"]: trace["id"] if trace["id"] in known else _alias(trace) for trace in traces}
    found = {
        "captures": {
            capture["capture"]: _capture(daemon, capture, words=capture["capture"] in known) for capture in captures
        },
        "traces": {aliases[trace["id"]]: _trace(trace, words=trace["id"] in known) for trace in traces},
        "answers": {aliases[trace["id"]]: _answers(daemon, trace["id"], words=trace["id"] in known) for trace in traces}
        if closely
        else {},
        "lying about": _leftovers(daemon.state_dir),
    }
    text = json.dumps(found).replace(str(daemon.directory), ROOT)
    for trace, alias in aliases.items():
        text = text.replace(trace, alias)
    result: dict[str, Any] = json.loads(text)
    return result


def _alias(trace: dict[str, Any]) -> str:
    """A name for a trace whose id is not known beforehand: it comes of a retry."""
    return f"{trace['capture']}/{trace['pid']}"


def _capture(daemon: RunningDaemon, capture: dict[str, Any], *, words: bool) -> dict[str, Any]:
    shown = told(daemon, "show", capture["capture"])
    assert shown == capture, "`show` and `captures` differ"
    targets = [
        {**target, "waterfall": [phase["name"] for phase in target["waterfall"]]} for target in capture["targets"]
    ]
    found = {**capture, "finished_ns": capture["finished_ns"] is not None, "targets": targets}
    return found if words else _without_words(found)


def _trace(trace: dict[str, Any], *, words: bool) -> dict[str, Any]:
    said = {key: value for key, value in trace.items() if key not in ("id", "created_ns", "bytes")}
    return said if words else dict(_without_words(said))


def _answers(daemon: RunningDaemon, trace: str, *, words: bool) -> dict[str, Any]:
    shown = told(daemon, "show", trace)
    for volatile in ("trace", "waterfall", "next"):
        shown.pop(volatile, None)
    shown["steps"] = _without_words(shown.get("steps"))  # which are of now
    return {
        "show": shown if words else _without_words(shown),
        "top": told(daemon, "top", trace, "--limit", str(TOP)),
        "rows": {name: digest(rows(daemon, trace, name)) for name in QUESTIONS},
    }


def rows(daemon: RunningDaemon, trace: str, table: str) -> Any:
    """All rows of one table of a trace, or why there are none."""
    answer = told(daemon, "sql", "--limit", "0", trace, QUESTIONS[table])
    return answer.get("rows", answer)


def digest(found: Any) -> Any:
    """Of rows: how many, and a hash of what is in them."""
    if isinstance(found, dict):
        return found
    return [len(found), hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]]


def _without_words(value: Any) -> Any:
    """Of sentences: that there is one, and whether it promises a retry; of lists of them: how many."""
    if isinstance(value, dict):
        return {key: _said(key, each) for key, each in value.items()}
    return [_without_words(each) for each in value] if isinstance(value, list) else value


def _said(key: str, value: Any) -> Any:
    if key in ("message", "detail", "error"):
        return value and ("a promise of `profctl retry`" if "profctl retry" in value else "a sentence")
    return len(value) if key in ("warnings", "not_honoured") else _without_words(value)


def _leftovers(state: Path) -> dict[str, Any]:
    """What is on its way, and names of files that are not whole."""
    journal = [str(path.relative_to(state)) for path in sorted((state / "journal").rglob("*")) if path.is_file()]
    passing = [path.name for pattern in ("traces/.*", "staging/*", "trash/*") for path in state.glob(pattern)]
    parts = [path.name for path in sorted(state.rglob("*")) if path.suffix == ".part" or path.name.startswith(".profd")]
    hidden = [path.name for path in sorted((state / "records").rglob(".*"))]
    target = sorted(path.name for path in (state.parent / "target").rglob("*") if path.is_file())
    return {"journal": journal, "passing": passing, "parts": parts, "records": hidden, "target": target}


def missing(wanted: Any, found: Any, where: str = "") -> list[str]:
    """Where `found` is not what is `wanted`; keys that are new are no fault."""
    if isinstance(wanted, dict) and isinstance(found, dict) and not where.endswith(("captures", "traces", "answers")):
        faults = [f"{where}/{key} is gone" for key in wanted if key not in found]
        return faults + [
            fault for key in wanted if key in found for fault in missing(wanted[key], found[key], f"{where}/{key}")
        ]
    if isinstance(wanted, dict) and isinstance(found, dict):
        faults = [f"{where}: {sorted(wanted)} wanted, {sorted(found)} found"] if set(wanted) != set(found) else []
        return faults + [
            fault for key in wanted if key in found for fault in missing(wanted[key], found[key], f"{where} {key}")
        ]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [
            fault
            for at, (one, other) in enumerate(zip(wanted, found, strict=True))
            for fault in missing(one, other, f"{where}[{at}]")
        ]
    return [] if wanted == found else [f"{where}: {wanted!r} wanted, {found!r} found"]


def recover(name: str, *, user: bool = True, prepare: Callable[[Path], None] = lambda folder: None) -> dict[str, Any]:
    """Let a daemon of now recover it: what it says at first, after a retry of all that failed, and after a restart."""
    with unpacked(name, open_to_all=not user) as folder:
        known = _settled_before(folder / "state")
        kept = _audit_lines(folder)
        prepare(folder)
        daemon = start_daemon(folder, user=user, environ=ONE_WORKER)
        try:
            settled(daemon)
            found = {"first": look(daemon, known), "retries": retry_all(daemon)}
            found["then"] = look(daemon, known, closely=True)
            assert daemon.stop() == 0, daemon.log
            daemon = start_daemon(folder, user=user, environ=ONE_WORKER)
            again = look(daemon, known) | {"answers": found["then"]["answers"]}
            assert again == found["then"], missing(found["then"], again)
            gone = [line for line in kept if line not in _audit_lines(folder)]
            assert not gone, f"lines of the audit log are gone: {gone}"
            if not user:
                found["theirs"] = _theirs(daemon)
        finally:
            daemon.stop()
    return found


def settled(daemon: RunningDaemon) -> None:
    """Wait until every capture has its end."""
    until(
        lambda: all(capture["finished_ns"] is not None for capture in told(daemon, "captures")),
        "all captures have ended",
    )
    until(lambda: not any((daemon.state_dir / "traces").glob(".*")), "nothing is being stored")
    ended = [
        f"journal/{capture['capture']}/{target['pid']}-*"
        for capture in told(daemon, "captures")
        for target in capture["targets"]
        if target["state"] != "failed"
    ]
    until(
        lambda: not any(list(daemon.state_dir.glob(place)) for place in ended), "raw files that nobody needs are gone"
    )
    until(lambda: not list(daemon.directory.glob("target/profd-*")), "files of ours are gone from the targets' folder")


def retry_all(daemon: RunningDaemon) -> dict[str, Any]:
    """Retry each capture that failed: the exit code, and what is said where it cannot be done."""
    failed = [capture["capture"] for capture in told(daemon, "captures") if capture["state"] == "failed"]
    found = {}
    for capture in sorted(failed):
        answer = told(daemon, "retry", capture)
        found[capture] = answer if "exit" in answer else "done"
        settled(daemon)
    result: dict[str, Any] = _without_words(found)
    return result


def _settled_before(state: Path) -> set[str]:
    """Traces that are there, and captures that have ended."""
    records = [json.loads(path.read_text()) for path in (state / "records" / "captures").glob("c*.json")]
    traces = {path.name for path in (state / "traces").iterdir()}
    return traces | {record["id"] for record in records if record["finished_ns"] is not None}


def _audit_lines(folder: Path) -> list[str]:
    return [line for path in sorted((folder / "state").glob("audit.jsonl*")) for line in path.read_text().splitlines()]


def _theirs(daemon: RunningDaemon) -> dict[str, Any]:
    """What the users of tests/corpus/make.py see of it."""
    found: dict[str, Any] = {}
    for uid in (4242, 65534, 4243):
        traces, captures = (_as(uid, daemon, verb) for verb in ("list", "captures"))
        found[str(uid)] = {
            "traces": len(traces),
            "captures": sorted(capture["capture"] for capture in captures),
        }
    return found


def _as(uid: int, daemon: RunningDaemon, verb: str) -> Any:
    """What `profctl VERB --json` prints for that user."""
    done = people.profctl(uid, daemon.directory, verb, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)

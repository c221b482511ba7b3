"""What the RPCs of trace.proto and the offline verbs answered before questions were a table, on two small traces.

`tests/data/old-answers.json` was recorded by `python -m tests.support.old_answers` from the code of that time; the
adapters are held to it. Record it again only where an answer itself is meant to change.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from profd.errors import ProfdError
from profd.offline import run_here
from profd.questions.library import Library
from profd.rpc.answers import Answers
from profd.rpc.traces import TraceServicer
from profd.segments.meta import TraceMeta
from profd.store.store import Store, StoreLimits
from profd.trust import caller as callers
from profd.trust.caller import Caller
from profproto.v1 import trace_pb2 as pb

FILE = Path(__file__).parents[1] / "data" / "old-answers.json"
TEXT_MAX = 1200  # longer answers are kept as a digest
ANN = Caller(uid=1001, gid=1001, user="ann", admin=False, pid=0)
BOB = Caller(uid=1002, gid=1002, user="bob", admin=False, pid=0)
BASE = 1_700_000_000_000_000_000
FIRST, SECOND, THEIRS = "06v0000aaaaaa", "06v0001bbbbbb", "06v0002cccccc"


def _event(name: str, ts: int, dur: int, cat: str = "cpu_op", tid: int = 7, **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": args}


def training(multiply_us: int, steps: int = 3) -> bytes:
    """Steps of 1000 us, in each a product of so many us with shapes, a launch, and a kernel."""
    events = []
    for step in range(steps):
        at = step * 1000
        shapes: dict[str, Any] = {"Input Dims": [[2, 3], [3, 4]], "External id": step + 1}
        events += [
            _event(f"ProfilerStep#{step}", at, 1000, "user_annotation"),
            _event("nn.Module: Linear_0", at + 5, multiply_us + 40, "python_function", **{"Python id": step + 1}),
            _event("aten::mm", at + 10, multiply_us, **shapes),
            _event("cudaLaunchKernel", at + 20, 10, "cuda_runtime", correlation=step + 9),
            _event("gemm\x1b[31m", at + 100, 300, "kernel", 20, correlation=step + 9, device=0, stream=7),
        ]
    return json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": BASE, "traceEvents": events}).encode()


async def stored(root: Path) -> Store:
    """A store with two traces of Ann's, and one of somebody else's."""
    store = Store(root, StoreLimits(free_share_min=0.0))
    for number, (trace, multiply_us, uid) in enumerate(((FIRST, 200, 1001), (SECOND, 350, 1001), (THEIRS, 90, 4))):
        staging = store.staging()
        with tempfile.TemporaryFile() as file:
            file.write(training(multiply_us))
            file.seek(0)
            meta: dict[str, Any] = {
                "trace": trace,
                "owner_uid": uid,
                "owner": "ann" if uid == 1001 else "adm",
                "source": "import",
            }
            files = [{"format": "chrome", "label": "t", "fd": 0}]
            await run_here("store_trace", {"files": files, "staging": str(staging), "meta": meta}, [file.fileno()])
        store.adopt(staging, TraceMeta(**meta, created_ns=BASE + number, title=f"train {number}", host="node7"))
    return store


RPCS: list[tuple[str, Any]] = [
    ("Summary", pb.TraceRef(id=FIRST)),
    ("Summary", pb.TraceRef()),
    ("Summary", pb.TraceRef(id=THEIRS)),
    ("Summary", pb.TraceRef(id="0")),
    ("Summary", pb.TraceRef(id="zzz")),
    ("KeyAverages", pb.KeyAveragesRequest(id=FIRST)),
    ("KeyAverages", pb.KeyAveragesRequest(id=FIRST, raw=True, limit=2, sort_by="count")),
    ("KeyAverages", pb.KeyAveragesRequest(id=FIRST, group_by_input_shape=True, group_by="module")),
    ("KeyAverages", pb.KeyAveragesRequest(id=FIRST, group_by_stack_n=2, with_backward=True)),
    ("KeyAverages", pb.KeyAveragesRequest(id=FIRST, sort_by="backward_time_total")),
    ("KeyAverages", pb.KeyAveragesRequest(id=FIRST, sort_by="beauty")),
    ("KeyAverages", pb.KeyAveragesRequest(id=FIRST, group_by="colour")),
    ("KeyAverages", pb.KeyAveragesRequest(id=FIRST, limit=-1)),
    ("KeyAverages", pb.KeyAveragesRequest(id=FIRST, group_by_stack_n=-7)),
    ("KeyAverages", pb.KeyAveragesRequest(id=THEIRS)),
    ("Tree", pb.TreeRequest(id=FIRST)),
    ("Tree", pb.TreeRequest(id=FIRST, max_depth=1)),
    ("Tree", pb.TreeRequest(id=FIRST, from_row=1)),
    ("Tree", pb.TreeRequest(id=FIRST, from_row=0)),
    ("Tree", pb.TreeRequest(id=FIRST, from_row=99)),
    ("Tree", pb.TreeRequest(id=FIRST, from_row=-1)),
    ("Tree", pb.TreeRequest(id=FIRST, max_depth=-1)),
    ("Tree", pb.TreeRequest(id=THEIRS)),
    ("Export", pb.ExportRequest(id=FIRST)),
    ("Export", pb.ExportRequest(id=FIRST, format="chrome", gzip=True)),
    ("Export", pb.ExportRequest(id=FIRST, format="perfetto")),
    ("Export", pb.ExportRequest(id=FIRST, format="folded")),
    ("Export", pb.ExportRequest(id=FIRST, format="speedscope")),
    ("Export", pb.ExportRequest(id=FIRST, format="pprof")),
    ("Export", pb.ExportRequest(id=FIRST, format="xspace")),
    ("Export", pb.ExportRequest(id=FIRST, format="folded", from_ns=1_000_000, to_ns=2_000_000)),
    ("Export", pb.ExportRequest(id=FIRST, format="folded", first_step=0)),
    ("Export", pb.ExportRequest(id=FIRST, format="folded", first_step=1, last_step=2, min_duration_ns=100_000)),
    ("Export", pb.ExportRequest(id=FIRST, redact=["names", "values"])),
    ("Export", pb.ExportRequest(id=FIRST, redact=["names", "colours"])),
    ("Export", pb.ExportRequest(id=FIRST, redact=["names"], format="folded")),
    ("Export", pb.ExportRequest(id=FIRST, format="svg")),
    ("Export", pb.ExportRequest(id=FIRST, min_duration_ns=-4)),
    ("Export", pb.ExportRequest(id=FIRST, format="parquet", gzip=True)),
    ("Export", pb.ExportRequest(id=FIRST, from_ns=5, to_ns=5)),
    ("Export", pb.ExportRequest(id=FIRST, first_step=1, to_ns=5)),
    ("Export", pb.ExportRequest(id=FIRST, first_step=77)),
    ("Export", pb.ExportRequest(id=THEIRS)),
    ("Steps", pb.TraceRef(id=FIRST)),
    ("Steps", pb.TraceRef(id=THEIRS)),
    ("Gpu", pb.TraceRef(id=FIRST)),
    ("Gpu", pb.TraceRef(id="zzz")),
    ("Timeline", pb.TimelineRequest(id=FIRST)),
    ("Timeline", pb.TimelineRequest(id=FIRST, lines=["ops", "steps"], rules="classic")),
    ("Timeline", pb.TimelineRequest(id=FIRST, lines=["rivers", "ops", "hills"])),
    ("Timeline", pb.TimelineRequest(id=FIRST, rules="baroque")),
    ("Diff", pb.DiffRequest(id=FIRST, other=SECOND)),
    ("Diff", pb.DiffRequest(id=FIRST, other=SECOND, by="path")),
    ("Diff", pb.DiffRequest(id=FIRST, other="", by="module")),
    ("Diff", pb.DiffRequest(id=FIRST, other=SECOND, by="colour")),
    ("Diff", pb.DiffRequest(id=FIRST, other=THEIRS)),
    ("Diff", pb.DiffRequest(id=THEIRS, other=FIRST)),
    ("Sql", pb.SqlRequest(id=FIRST, sql="select name, count(*) n from events group by name order by name")),
    ("Sql", pb.SqlRequest(id=FIRST, sql="select name from events order by name", limit=2)),
    ("Sql", pb.SqlRequest(id=FIRST, sql=" ")),
    ("Sql", pb.SqlRequest(id=FIRST, sql="drop table events")),
    ("Sql", pb.SqlRequest(id=FIRST, sql="select 1", limit=-1)),
    ("Sql", pb.SqlRequest(id=FIRST, sql="select 1", limit=1_000_001)),
    ("Sql", pb.SqlRequest(id=FIRST, sql="x" * 70_000)),
    ("Sql", pb.SqlRequest(id=THEIRS, sql="select 1")),
]

VERBS: list[tuple[str, dict[str, Any]]] = [
    ("summary", {"id": FIRST}),
    ("top", {"id": FIRST, "limit": 0, "sort_by": "", "group_by_input_shape": True, "group_by_stack_n": 0}),
    ("top", {"id": FIRST, "raw": True, "limit": 1, "group_by": "", "with_backward": False}),
    ("top", {"id": FIRST, "raw": "yes"}),
    ("top", {"id": FIRST, "limit": 1.5}),
    ("top", {"id": FIRST, "limit": True}),
    ("top", {"id": FIRST, "limit": -3}),
    ("top", {"id": FIRST, "sort_by": 5}),
    ("tree", {"id": FIRST, "max_depth": 1, "from_row": None}),
    ("tree", {"id": FIRST, "from_row": "x"}),
    ("export", {"id": FIRST, "format": "folded", "from_ns": None, "gzip": False, "redact": []}),
    ("export", {"id": FIRST, "format": "folded", "redact": "names"}),
    ("steps", {"id": FIRST}),
    ("gpu", {"id": FIRST}),
    ("timeline", {"id": FIRST, "lines": ["steps"], "rules": "current"}),
    ("timeline", {"id": FIRST, "lines": [5]}),
    ("diff", {"id": FIRST, "other": SECOND, "by": "name"}),
    ("diff", {"id": FIRST, "other": 7}),
    ("sql", {"id": FIRST, "sql": "select count(*) from events", "limit": 0}),
    ("sql", {"id": FIRST}),
    ("steps", {"id": "zzz"}),
    ("steps", {"id": 5}),
]


async def of_rpcs(root: Path) -> dict[str, Any]:
    """Each call of RPCS, and what it answered: the bytes of its messages, or the error; and the audit lines."""
    store = await stored(root)
    audited: list[list[str]] = []

    def used(action: str, caller: Caller, record: Any) -> None:
        audited.append([action, caller.user, record.id])

    class Audit:
        def write(self, action: str, uid: int, **details: object) -> None:
            raise AssertionError(action)

    library = Library(store, run_here, "node7", used)
    servicer = TraceServicer(library, Audit(), Answers(library, lambda uid: False))
    callers.enter(ANN)
    answers = {}
    for method, request in RPCS:
        asked = f"{method} {json_format.MessageToJson(request, indent=None)[:200]}"
        audited.clear()
        answers[asked] = {**await _answer(getattr(servicer, method)(request, None)), "audit": list(audited)}
    store.close()
    return answers


async def _answer(call: Any) -> dict[str, Any]:
    try:
        if isinstance(call, AsyncIterator):
            return _kept(b"".join([chunk.data async for chunk in call]))
        message = await call
    except ProfdError as error:
        return {"error": type(error).__name__, "says": str(error)}
    if isinstance(message, pb.SummaryResponse):
        message.trace.bytes = 0  # what Parquet's writer makes of it
        return {**_kept(message.trace.SerializeToString(deterministic=True)), "summary": message.summary_json.decode()}
    return _kept(message.SerializeToString(deterministic=True))


def _kept(data: bytes) -> dict[str, Any]:
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    data = re.sub(rb"name-[0-9a-f]{12}", b"name-x", data)  # hashes are salted anew each time
    if len(data) > TEXT_MAX or not data.isascii():
        return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return {"text": data.decode()}


def of_verbs(root: Path) -> dict[str, Any]:
    """Each offline verb of VERBS in a process of its own, and what it printed."""
    asyncio.run(stored(root)).close()
    answers = {}
    for verb, request in VERBS:
        command = [sys.executable, "-m", "profd.offline", verb, "--store", str(root)]
        done = subprocess.run(command, input=json.dumps(request).encode(), capture_output=True, check=False)
        kept = _kept(_without_sizes(verb, done.stdout))
        answers[f"{verb} {json.dumps(request)}"] = {**kept, "code": done.returncode, "stderr": done.stderr.decode()}
    return answers


def _without_sizes(verb: str, answer: bytes) -> bytes:
    if verb != "summary":
        return answer
    summary = json.loads(answer)
    summary["trace"]["bytes"] = 0
    return json.dumps(summary).encode()


if __name__ == "__main__":
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as folder:
        found = {"rpcs": asyncio.run(of_rpcs(Path(folder, "a"))), "verbs": of_verbs(Path(folder, "b"))}
    FILE.write_text(json.dumps(found, indent=1) + "\n")
    print(len(found["rpcs"]), len(found["verbs"]), FILE.stat().st_size)

"""What a whole daemon writes down: of a hostile user's flood, of reads, and of an admin, in one audit log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from profd.limits import AUDIT_LINES_MAX
from profd.trust.audit_copy import JOURNALD
from profproto.v1 import trace_pb2, trace_pb2_grpc

from tests.integration.daemon.test_work import SECONDS, import_trace
from tests.support.daemon import RunningDaemon, running_daemon

pytestmark = pytest.mark.slow

FLOOD = AUDIT_LINES_MAX + 180
SOMEBODY = 4321

HOSTILE = """
import json, os, socket, sys
import grpc
from profproto.v1 import query_pb2, query_pb2_grpc, trace_pb2, trace_pb2_grpc
control, address, shared, private, file, flood = sys.argv[1:]
data = open(file, "rb").read()
channel = grpc.insecure_channel(address, options=[("grpc.default_authority", "localhost")])
traces, questions = trace_pb2_grpc.TraceServiceStub(channel), query_pb2_grpc.QueryServiceStub(channel)
def query(name, trace):
    return list(questions.Query(query_pb2.QueryRequest(name=name, scope=query_pb2.Scope(trace=trace)), **asked))
def denied(ask):
    try:
        ask()
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    else:
        raise AssertionError("it was not denied")
os.setgroups([]); os.setgid(4321); os.setuid(4321)
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(control)
asked = dict(metadata=(("profd-token", json.loads(sock.recv(65536))["token"]),), timeout=120)
mine = traces.Import(iter([trace_pb2.ImportChunk(data=data)]), **asked).trace.id
list(traces.Export(trace_pb2.ExportRequest(id=shared), **asked))
list(traces.Sql(trace_pb2.SqlRequest(id=shared, sql="select 1"), **asked))
traces.KeyAverages(trace_pb2.KeyAveragesRequest(id=shared), **asked)
query("gpu", shared)
query("steps", shared)
for _ in range(3):
    traces.Summary(trace_pb2.TraceRef(id=mine), **asked)
fat = trace_pb2.ShareTraceRequest(id=mine)
getattr(fat, "with").extend(str(2_000_000_000 + uid) for uid in range(250))
for _ in range(int(flood)):
    traces.ShareTrace(fat, **asked)
denied(lambda: list(traces.Export(trace_pb2.ExportRequest(id=private), **asked)))
denied(lambda: query("export", private))
print(mine)
"""


def hostile(daemon: RunningDaemon, tmp_path: Path, shared: str, private: str) -> str:
    file = tmp_path / "trace.json"
    events = [{"ph": "X", "name": "f", "pid": 1, "tid": 1, "ts": n, "dur": 1} for n in range(5)]
    file.write_text(json.dumps({"traceEvents": events}))
    arguments = [str(daemon.control), f"unix:{daemon.socket}", shared, private, str(file), str(FLOOD)]
    command = [sys.executable, "-c", HOSTILE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS * 4)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_flood_hides_nothing(tmp_path: Path) -> None:
    with running_daemon(user=False) as daemon:
        traces = daemon.stub(trace_pb2_grpc.TraceServiceStub)
        shared, private = import_trace(daemon).id, import_trace(daemon).id
        asked = trace_pb2.ShareTraceRequest(id=shared)
        getattr(asked, "with").append("*")
        traces.ShareTrace(asked, metadata=daemon.metadata(), timeout=SECONDS)
        theirs = hostile(daemon, tmp_path, shared, private)
        traces.Summary(trace_pb2.TraceRef(id=theirs), metadata=daemon.metadata(), timeout=SECONDS)
        daemon.stop()
        entries: list[dict[str, Any]] = [
            json.loads(line) for line in (daemon.state_dir / "audit.jsonl").read_text().splitlines()
        ]
    root = [(entry["action"], entry.get("trace")) for entry in entries if entry["uid"] == 0]
    assert root == [
        ("daemon.start", None),
        *(("trace.import", trace) for trace in (shared, private)),
        *(("trace.share", shared), ("trace.show", theirs)),
    ]
    mine = [entry for entry in entries if entry["uid"] == SOMEBODY]
    reads = [(entry["action"], entry["trace"], entry["owner"]) for entry in mine if entry.get("owner") is not None]
    assert reads == [(f"trace.{verb}", shared, 0) for verb in ("export", "sql", "top", "gpu", "steps")]
    denied = [(entry["method"], entry["why"]) for entry in mine if entry["action"] == "denied"]
    assert [method for method, _ in denied] == ["/profd.v1.TraceService/Export", "/profd.v1.QueryService/Query"]
    assert all(why.startswith(f"Trace {private}") for _, why in denied)
    summed: Counter[str] = Counter()
    for entry in mine:
        summed.update(entry["counts"] if entry["action"] == "audit.counted" else {entry["action"]: 1})
    assert (summed["trace.share"], summed["trace.show"], summed["trace.import"]) == (FLOOD, 3, 1)
    assert max(len(json.dumps(entry)) for entry in entries) < 1024


@pytest.mark.skipif(JOURNALD.exists(), reason="a journal listens here")
def test_a_missing_journal_keeps_nobody_from_anything() -> None:
    with running_daemon(environ={"PROFD_AUDIT_COPY": "journald"}) as daemon:
        assert import_trace(daemon).events
        daemon.stop()
        assert daemon.log.count(f"not copied to {JOURNALD}") == 1
        assert len((daemon.state_dir / "audit.jsonl").read_text().splitlines()) == 2

"""A real daemon at work: traces in and out, other people, dying workers, stopping in the middle."""

from __future__ import annotations

import gzip
import json
import os
import select
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from profd.limits import IMPORT_ASIDE_BYTES
from profproto.v1 import capture_pb2 as capture
from profproto.v1 import capture_pb2_grpc, host_pb2, host_pb2_grpc, query_pb2, query_pb2_grpc, trace_pb2, trace_pb2_grpc

from tests.support.daemon import ONE_WORKER, RunningDaemon, running_daemon, start_daemon
from tests.support.waiting import until

pytestmark = pytest.mark.slow

ROWS = 3000
SECONDS = 120.0


def chrome_json(rows: int = ROWS) -> bytes:
    events = [
        {"ph": "X", "name": f"op{n % 7}", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 10 * n, "dur": 5, "args": {"n": n}}
        for n in range(rows)
    ]
    return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()


def chunks(data: bytes, size: int = 100_000) -> Iterator[trace_pb2.ImportChunk]:
    yield trace_pb2.ImportChunk(filename="../../etc/passwd\n.json")
    for at in range(0, len(data), size):
        yield trace_pb2.ImportChunk(data=data[at : at + size])


def import_trace(daemon: RunningDaemon, data: bytes | None = None) -> trace_pb2.Trace:
    stub = daemon.stub(trace_pb2_grpc.TraceServiceStub)
    content = chrome_json() if data is None else data
    return stub.Import(chunks(content), metadata=daemon.metadata(), timeout=SECONDS).trace


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture(scope="module")
def traces(daemon: RunningDaemon) -> trace_pb2_grpc.TraceServiceStub:
    return daemon.stub(trace_pb2_grpc.TraceServiceStub)


@pytest.fixture(scope="module")
def trace(daemon: RunningDaemon) -> trace_pb2.Trace:
    return import_trace(daemon)


def test_imported_trace(daemon: RunningDaemon, traces: Any, trace: trace_pb2.Trace) -> None:
    assert (trace.events, trace.source, trace.owner_uid) == (ROWS, "import", os.getuid())
    assert "\n" not in trace.title
    assert "/" not in trace.title
    listed = traces.ListTraces(trace_pb2.ListTracesRequest(), metadata=daemon.metadata(), timeout=SECONDS).traces
    assert trace.id in {one.id for one in listed}
    for ref in (trace.id, trace.id[:9], ""):
        found = traces.GetTrace(trace_pb2.TraceRef(id=ref), metadata=daemon.metadata(), timeout=SECONDS)
        assert found.id == trace.id or not ref


def test_key_averages(daemon: RunningDaemon, traces: Any, trace: trace_pb2.Trace) -> None:
    asked = trace_pb2.KeyAveragesRequest(id=trace.id, raw=True, limit=2)
    rows = traces.KeyAverages(asked, metadata=daemon.metadata(), timeout=SECONDS).rows
    assert len(rows) == 2
    assert sum(row.count for row in rows) > 0
    assert rows[0].self_cpu_time_total_ns == rows[0].count * 5000


def test_summary(daemon: RunningDaemon, traces: Any, trace: trace_pb2.Trace) -> None:
    answer = traces.Summary(trace_pb2.TraceRef(id=trace.id), metadata=daemon.metadata(), timeout=SECONDS)
    assert answer.trace.id == trace.id
    assert isinstance(json.loads(answer.summary_json), dict)


def test_tree_is_streamed(daemon: RunningDaemon, traces: Any, trace: trace_pb2.Trace) -> None:
    stream = traces.Tree(trace_pb2.TreeRequest(id=trace.id), metadata=daemon.metadata(), timeout=SECONDS)
    lines = b"".join(chunk.data for chunk in stream).splitlines()
    assert [json.loads(line)["row"] for line in lines] == list(range(ROWS))


def test_export_comes_back(daemon: RunningDaemon, traces: Any, trace: trace_pb2.Trace) -> None:
    asked = trace_pb2.ExportRequest(id=trace.id, format="chrome", gzip=True)
    stream = traces.Export(asked, metadata=daemon.metadata(), timeout=SECONDS)
    events = json.loads(gzip.decompress(b"".join(chunk.data for chunk in stream)))["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == ROWS


def test_stream_that_is_given_up_costs_nobody(daemon: RunningDaemon, traces: Any, trace: trace_pb2.Trace) -> None:
    for _ in range(5):
        stream = traces.Tree(trace_pb2.TreeRequest(id=trace.id), metadata=daemon.metadata(), timeout=SECONDS)
        next(stream)
        stream.cancel()
    test_tree_is_streamed(daemon, traces, trace)


def test_what_was_kept_waits_for_nothing_that_lasts() -> None:
    """A stream that nobody reads has the one place of what lasts; before, it was lost after a minute, and then
    `steps` was answered.
    """
    with running_daemon(environ={"PROFD_WORKERS": "2"}) as daemon:
        large = import_trace(daemon, chrome_json(60_000)).id
        queries, given = daemon.stub(query_pb2_grpc.QueryServiceStub), {"metadata": daemon.metadata()}
        asked = query_pb2.QueryRequest(name="steps", scope={"trace": large})

        def steps() -> bytes:
            return b"".join(part.data for part in queries.Query(asked, timeout=SECONDS, **given))

        kept = steps()
        stream = daemon.stub(trace_pb2_grpc.TraceServiceStub).Export(
            trace_pb2.ExportRequest(id=large, format="chrome"), timeout=2 * SECONDS, **given
        )
        first = next(stream)
        assert steps() == kept
        exported = b"".join(chunk.data for chunk in (first, *stream))
        assert sum(event["ph"] == "X" for event in json.loads(exported)["traceEvents"]) == 60_000


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"", "DATA_LOSS"), (b"no trace", "DATA_LOSS"), (b"\x1f\x8b" + b"\0" * 50, "DATA_LOSS")],
    ids=["empty", "text", "broken gzip"],
)
def test_bad_imports(daemon: RunningDaemon, data: bytes, code: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        import_trace(daemon, data)
    assert caught.value.code().name == code
    assert not staged(daemon)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda s, m: s.GetTrace(trace_pb2.TraceRef(id="zzzz"), metadata=m, timeout=SECONDS), "NOT_FOUND"),
        (lambda s, m: s.DeleteTrace(trace_pb2.TraceRef(), metadata=m, timeout=SECONDS), "INVALID_ARGUMENT"),
        (
            lambda s, m: s.ListTraces(trace_pb2.ListTracesRequest(limit=-1), metadata=m, timeout=SECONDS),
            "INVALID_ARGUMENT",
        ),
        (
            lambda s, m: list(s.Export(trace_pb2.ExportRequest(format="x"), metadata=m, timeout=SECONDS)),
            "INVALID_ARGUMENT",
        ),
    ],
)
def test_bad_questions(daemon: RunningDaemon, traces: Any, trace: trace_pb2.Trace, call: Any, code: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call(traces, daemon.metadata())
    assert caught.value.code().name == code


def test_pin_share_and_delete(daemon: RunningDaemon, traces: Any) -> None:
    mine = import_trace(daemon)
    pinned = traces.PinTrace(trace_pb2.PinTraceRequest(id=mine.id, pinned=True), metadata=daemon.metadata(), timeout=60)
    assert pinned.pinned
    asked = trace_pb2.ShareTraceRequest(id=mine.id)
    getattr(asked, "with").append("*")
    assert traces.ShareTrace(asked, metadata=daemon.metadata(), timeout=60).shared_with == ["*"]
    traces.DeleteTrace(trace_pb2.TraceRef(id=mine.id), metadata=daemon.metadata(), timeout=60)
    assert not (daemon.state_dir / "traces" / mine.id).exists()
    assert '"trace.delete"' in (daemon.state_dir / "audit.jsonl").read_text()


def test_disable_is_durable_and_told(daemon: RunningDaemon) -> None:
    captures = daemon.stub(capture_pb2_grpc.CaptureServiceStub)

    def switch(enabled: bool) -> None:
        asked = capture.SetEnabledRequest(enabled=enabled, why="maintenance")
        captures.SetEnabled(asked, metadata=daemon.metadata(), timeout=SECONDS)

    switch(False)  # root's, or of whoever runs the daemon
    try:
        start = capture.StartCaptureRequest(selector=capture.Selector(pids=[os.getpid()]))
        start.options.duration_ns = 10**9
        with pytest.raises(grpc.RpcError, match="maintenance") as caught:
            captures.StartCapture(start, metadata=daemon.metadata(), timeout=SECONDS)
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        status = daemon.stub(host_pb2_grpc.HostServiceStub).GetHostStatus(
            host_pb2.GetHostStatusRequest(), metadata=daemon.metadata(), timeout=SECONDS
        )
        assert not status.enabled
        assert "maintenance" in status.disabled_why
    finally:
        switch(True)
    assert not (daemon.state_dir / "disabled").exists()


def workers_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"profd.workers.process" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def staged(daemon: RunningDaemon) -> list[Path]:
    """Directories that are to become traces, at a worker's gate or not."""
    return [path for pattern in ("traces/.*", "gates/*/out/.*") for path in daemon.state_dir.glob(pattern)]


# It cannot pause in a file that comes, and behind a question the next one is awaited for an hour.
PAUSES_FAIL = (
    "-c",
    "from profd import main; from profd.rpc import imports; from profd.workers import weights; "
    "imports.IMPORT_ASIDE_SECONDS = 'no number'; weights.LASTING_LOW_SECONDS = 3600.0; main.main()",
)


def test_files_come_slowly_while_an_answer_is_awaited() -> None:
    with running_daemon(environ=ONE_WORKER, program=PAUSES_FAIL) as daemon:
        large = chrome_json(6000)
        assert len(large) > IMPORT_ASIDE_BYTES
        ref = trace_pb2.TraceRef(id=import_trace(daemon, large).id)  # nobody waits
        daemon.stub(trace_pb2_grpc.TraceServiceStub).Summary(ref, metadata=daemon.metadata(), timeout=SECONDS)
        with pytest.raises(grpc.RpcError) as raised:
            import_trace(daemon, large)
        assert raised.value.code() is grpc.StatusCode.INTERNAL
        assert "await asyncio.sleep(IMPORT_ASIDE_SECONDS)" in daemon.log


def test_killed_worker_fails_one_import_and_harms_no_other() -> None:
    with running_daemon() as daemon:
        workers = workers_of(daemon.process.pid)
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        outcome: list[Any] = []

        def try_it() -> None:
            try:
                outcome.append(import_trace(daemon).id)
            except grpc.RpcError as error:
                outcome.append(error)

        thread = threading.Thread(target=try_it)
        thread.start()
        until(lambda: staged(daemon), "the worker writes")
        pidfds = [os.pidfd_open(pid) for pid in workers]
        for pidfd in pidfds:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        for pidfd in pidfds:  # one that is about to die could still be given the next import
            assert select.select([pidfd], [], [], SECONDS)[0]
            os.close(pidfd)
        thread.join(SECONDS)
        (ended,) = outcome
        # Killed before it had the job: another worker did it. With the job: that import failed, and says why.
        if isinstance(ended, grpc.RpcError):
            assert ended.code() is grpc.StatusCode.INTERNAL
            assert "SIGKILL" in str(ended.details())
        assert import_trace(daemon).events == ROWS
        assert not staged(daemon)


AS_SOMEBODY_ELSE = """
import json, os, socket, sys
import grpc
from profproto.v1 import capture_pb2, capture_pb2_grpc, trace_pb2, trace_pb2_grpc
control, address, root_pid, trace = sys.argv[1:]
channel = grpc.insecure_channel(address, options=[("grpc.default_authority", "localhost")])
traces = trace_pb2_grpc.TraceServiceStub(channel)
captures = capture_pb2_grpc.CaptureServiceStub(channel)
os.setgroups([]); os.setgid(4321); os.setuid(4321)
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(control)
metadata = (("profd-token", json.loads(sock.recv(65536))["token"]),)
start = capture_pb2.StartCaptureRequest(selector=capture_pb2.Selector(pids=[int(root_pid)]))
start.options.duration_ns = 10**9
everything = capture_pb2.ListTargetsRequest()
calls = {
    "list": lambda: list(traces.ListTraces(trace_pb2.ListTracesRequest(), metadata=metadata, timeout=120).traces),
    "get": lambda: traces.GetTrace(trace_pb2.TraceRef(id=trace), metadata=metadata, timeout=120),
    "delete": lambda: traces.DeleteTrace(trace_pb2.TraceRef(id=trace), metadata=metadata, timeout=120),
    "tree": lambda: list(traces.Tree(trace_pb2.TreeRequest(id=trace), metadata=metadata, timeout=120)),
    "start": lambda: captures.StartCapture(start, metadata=metadata, timeout=120),
    "disable": lambda: captures.SetEnabled(capture_pb2.SetEnabledRequest(), metadata=metadata, timeout=120),
    "ps": lambda: list(captures.ListTargets(everything, metadata=metadata, timeout=120).targets),
}
result = {}
for name, call in calls.items():
    try:
        answer = call()
        result[name] = len(answer) if isinstance(answer, list) else "done"
    except grpc.RpcError as error:
        result[name] = error.code().name
print(json.dumps(result))
channel.close()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_others_see_and_touch_only_what_is_theirs() -> None:
    with running_daemon("--metrics", "127.0.0.1:0", user=False) as daemon:
        daemon.directory.chmod(0o755)
        mine = import_trace(daemon)
        done = subprocess.run(
            [
                *(sys.executable, "-c", AS_SOMEBODY_ELSE, str(daemon.control), f"unix:{daemon.socket}"),
                *(str(os.getpid()), mine.id),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        denied = ("get", "delete", "tree", "start", "disable")
        assert {name: found[name] for name in denied} == dict.fromkeys(denied, "PERMISSION_DENIED")
        assert found["list"] == found["ps"] == 0
        audit = [json.loads(line) for line in (daemon.state_dir / "audit.jsonl").read_text().splitlines()]
        assert sum(entry["action"] == "denied" and entry["uid"] == 4321 for entry in audit) == len(denied)
        assert (daemon.state_dir / "traces" / mine.id).is_dir()


def metrics_of(daemon: RunningDaemon) -> dict[str, float]:
    """Samples by name with labels, read from the address that the log names."""
    (started,) = [entry for line in daemon.log.splitlines() if "listens" in (entry := json.loads(line))["message"]]
    with urllib.request.urlopen(f"http://{started['metrics']}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_metrics() -> None:
    with running_daemon("--metrics", "127.0.0.1:0") as daemon:
        import_trace(daemon)
        found = metrics_of(daemon)
        assert found['profd_rpcs_total{code="OK",method="TraceService/Import"}'] == 1
        assert found['profd_worker_jobs_total{result="done"}'] == 1
        assert found["profd_store_bytes"] > 0
        assert found["profd_enabled"] == 1
        assert found["process_resident_memory_bytes"] < 150e6
        assert any(name.startswith("profd_build_info{") for name in found)


BUSY = "import time\nprint('up', flush=True)\nend = time.time() + 600\nwhile time.time() < end: sum(range(1000))"


def test_stopping_in_the_middle_of_a_capture_ends_it_and_says_so() -> None:
    target = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
    assert target.stdout is not None
    target.stdout.readline()
    try:
        with running_daemon() as daemon:
            captures = daemon.stub(capture_pb2_grpc.CaptureServiceStub)
            start = capture.StartCaptureRequest(selector=capture.Selector(pids=[target.pid]))
            start.options.duration_ns = 300 * 10**9
            start.options.source = "pyspy"
            begun = captures.StartCapture(start, metadata=daemon.metadata(), timeout=SECONDS)
            if begun.state == capture.STATE_REFUSED:
                pytest.skip(begun.targets[0].message)
            watch = captures.WatchCapture(
                capture.WatchCaptureRequest(id=begun.id), metadata=daemon.metadata(), timeout=SECONDS
            )
            states = []
            for seen in watch:
                states.append(seen.targets[0].state)
                if states[-1] == capture.STATE_RECORDING and daemon.process.poll() is None:
                    daemon.process.send_signal(signal.SIGTERM)
                    break
            last = [seen.targets[0] for seen in watch][-1]  # the stream ends, because the capture does
            assert last.state >= capture.STATE_STORED
            assert daemon.process.wait(SECONDS) == 0
            again = start_daemon(daemon.directory)
            try:
                captures = again.stub(capture_pb2_grpc.CaptureServiceStub)
                kept = captures.GetCapture(capture.CaptureRef(id=begun.id), metadata=again.metadata(), timeout=SECONDS)
                assert (kept.targets[0].state, kept.targets[0].trace) == (last.state, last.trace)
            finally:
                again.stop()
    finally:
        target.kill()
        target.communicate()


def test_kill_in_the_middle_of_a_capture_leaves_a_terminal_state() -> None:
    target = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
    assert target.stdout is not None
    target.stdout.readline()
    try:
        with running_daemon() as daemon:
            captures = daemon.stub(capture_pb2_grpc.CaptureServiceStub)
            start = capture.StartCaptureRequest(selector=capture.Selector(pids=[target.pid]))
            start.options.duration_ns = 300 * 10**9
            start.options.source = "pyspy"
            begun = captures.StartCapture(start, metadata=daemon.metadata(), timeout=SECONDS)
            daemon.kill()
            again = start_daemon(daemon.directory)
            try:
                captures = again.stub(capture_pb2_grpc.CaptureServiceStub)
                kept = captures.GetCapture(capture.CaptureRef(id=begun.id), metadata=again.metadata(), timeout=SECONDS)
                assert kept.targets[0].state >= capture.STATE_STORED
                assert kept.HasField("finished_ns")
            finally:
                again.stop()
    finally:
        target.kill()
        target.communicate()

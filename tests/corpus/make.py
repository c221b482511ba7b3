"""Makes the corpus again, from the build that is installed: `python -m tests.corpus.make [NAME …]`, as root.

README.md says when.

Each scenario runs a real daemon in a folder of its own, which ends as the scenario says; its state is packed, and
what a daemon of this build makes of it is written beside it. Read that before you commit it: it is what every later
daemon will be held to.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import lzma
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from profproto.v1 import capture_pb2 as pb

from tests.support import earlier_agent, earlier_state, nvprof, people, random_xspace
from tests.support.attached import HOUR_NS, Captures, streamers
from tests.support.daemon import RunningDaemon, start_daemon
from tests.support.sdk_jobs import Agents
from tests.support.waiting import until

MiB = 1 << 20
HERE = Path(__file__).parent
UID = 4242  # of somebody else, whom no host needs to know
ARENA = {"PROFD_SDK_ARENA_BYTES": str(16 * MiB)}  # that of the recorded agent


# For py-spy, whose stacks have paths of files: none of this machine's.
BUSY = """
def work():
    return sum(i * i for i in range(200))
print("ready", flush=True)
while True:
    work()
"""


class Scene:
    """A daemon, and processes for it. `kill` ends all of them as a power cut would."""

    def __init__(self, folder: Path, *, user: bool = True) -> None:
        self.folder = folder
        self.user = user
        (folder / "target").mkdir(mode=0o777)
        (folder / "target").chmod(0o777)
        self._processes: list[subprocess.Popen[str]] = []
        self.daemon: RunningDaemon | None = None

    def start(self, fuse: str = "", *flags: str) -> Captures:
        """Start the daemon, one that kills itself where a fuse says so."""
        environ = dict(ARENA)
        if fuse:
            environ |= {"PROFD_TEST_FUSE": fuse, "PYTHONPATH": str(HERE / "fuse")}
        self.daemon = start_daemon(self.folder, *flags, environ=environ, user=self.user)
        return Captures(self.daemon)

    def target(self, kind: str, uid: int = 0) -> subprocess.Popen[str]:
        """A process of tests/corpus/target.py, ready. Its command line has no path of this machine."""
        assert self.daemon is not None
        environ = {
            **self.daemon.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TARGET_UID": str(uid),
            "KINETO_IPC_SOCKET_DIR": str(self.daemon.kineto_dir),
            "KINETO_ONDEMAND_TRACE_DIR": str(self.folder / "target"),
        }
        process = subprocess.Popen(
            ["python", "-c", BUSY] if kind == "busy" else ["python", "-m", "tests.corpus.target", kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )
        self._processes.append(process)
        hear(process, "ready")
        return process

    def dies(self) -> None:
        """Wait until the fuse has gone off, and end what is left."""
        assert self.daemon is not None
        self.daemon.process.wait(120)
        assert self.daemon.process.returncode in (-9, 137), f"it was no kill:\n{self.daemon.log}"
        self.kill()

    def kill(self) -> None:
        """The daemon first: it must not see how the others end."""
        assert self.daemon is not None
        drains = streamers(self.daemon)
        self.daemon.kill()
        for pid in drains:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        for process in self._processes:
            process.kill()
            process.communicate()
        self._processes.clear()

    def stored_chunks(self, pid: int, least: int) -> None:
        """Wait until so many bytes of this process are in the journal."""
        found = self.folder / "state" / "journal"
        until(
            lambda: any(file.stat().st_size >= least for file in found.glob(f"*/{pid}-*/chunks.pfc")), "chunks arrive"
        )


def hear(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 120)[0], f"{word} was not said"
    line = process.stdout.readline().strip()
    assert line == word, f"{line!r} where {word!r} is due"


def offered(captures: Captures, pid: int, source: str) -> None:
    """Wait until the daemon knows that it can be recorded so."""
    asked = pb.ListTargetsRequest(selector=pb.Selector(pids=[pid]))
    until(
        lambda: source in [one for each in captures.call("ListTargets", asked).targets for one in each.sources],
        f"{source} is offered for {pid}",
    )


def begun(captures: Captures, process: subprocess.Popen[str], source: str, **options: Any) -> str:
    """A capture of one process by one source; its id."""
    offered(captures, process.pid, source)
    return captures.start(process.pid, source=source, **{"duration_ns": HOUR_NS, "force": True, **options}).id


def reaches(captures: Captures, capture: str, state: int) -> None:
    captures.until(capture, lambda found: all(target.state >= state for target in found.targets))


# --- the scenarios, by name ---


def under_way(scene: Scene) -> None:
    """Captures of every source, each in another phase, and all processes killed at once."""
    captures = scene.start()
    mute = scene.target("mute")
    begun(captures, mute, "sdk")  # never armed: nothing is there
    hear(mute, "asked")
    counting = scene.target("counting")
    recording = begun(captures, counting, "sdk")
    reaches(captures, recording, pb.STATE_RECORDING)
    scene.stored_chunks(counting.pid, 20_000)
    busy = scene.target("busy")
    reaches(captures, begun(captures, busy, "pyspy"), pb.STATE_RECORDING)
    silent = scene.target("kineto-silent")
    reaches(captures, begun(captures, silent, "kineto"), pb.STATE_ARMED)
    for kind in ("kineto-taken", "kineto-writing"):
        taken = scene.target(kind)
        capture = begun(captures, taken, "kineto", duration_ns=60 * 10**9)
        reaches(captures, capture, pb.STATE_RECORDING)
        hear(taken, "asked")
    clinging = scene.target("clinging")
    draining = begun(captures, clinging, "sdk")
    reaches(captures, draining, pb.STATE_RECORDING)
    captures.call("StopCapture", pb.CaptureRef(id=draining))
    hear(clinging, "asked")
    reaches(captures, draining, pb.STATE_DRAINING)
    scene.stored_chunks(clinging.pid, 10_000)
    scene.kill()


def several_targets(scene: Scene) -> None:
    """One capture of three processes: one was refused, two are killed while they record."""
    captures = scene.start()
    whole, refusing, counting = scene.target("whole"), scene.target("refusing"), scene.target("counting")
    pids = [process.pid for process in (whole, refusing, counting)]
    for pid in pids:
        offered(captures, pid, "sdk")
    capture = captures.start(*pids, duration_ns=HOUR_NS, source="sdk", force=True).id
    captures.until(capture, lambda found: all(one.state >= pb.STATE_RECORDING for one in found.targets))
    scene.stored_chunks(counting.pid, 20_000)
    scene.stored_chunks(whole.pid, 10_000)
    scene.kill()


def fused(kind: str, source: str, fuse: str) -> Callable[[Scene], None]:
    """One capture, in a daemon that kills itself on the way."""

    def scenario(scene: Scene) -> None:
        captures = scene.start(fuse)
        process = scene.target(kind)
        with contextlib.suppress(Exception):  # the call ends with the daemon
            captures.ended(begun(captures, process, source, duration_ns=500_000_000))
        scene.dies()

    return scenario


COLLATING = 'record "state":5'
ADOPTING = r"os.rename /traces/\.staging-\w+ .*/traces/"  # all is there but the name
ADOPTED = r"open /state/traces "  # it is synced after the rename; the record knows nothing yet
REMOVING = r"shutil.rmtree /journal/c\w+/"  # the record is written, raw files still lie there
TAKING = r"open /journal/c\w+/[-\d]+/\S*trace\.json"  # libkineto's file is being copied


def import_cut_off(scene: Scene) -> None:
    """A user's import, in a daemon that kills itself before the trace has its name."""
    scene.start(ADOPTING)
    assert scene.daemon is not None
    file = scene.folder / "trace.json"
    file.write_text(json.dumps(CHROME))
    earlier_state.profctl(scene.daemon, "import", str(file))
    scene.dies()


def torn_journal(scene: Scene) -> None:
    """A machine that lost its power: the last chunk is there in part."""
    captures = scene.start()
    counting = scene.target("counting")
    reaches(captures, begun(captures, counting, "sdk"), pb.STATE_RECORDING)
    scene.stored_chunks(counting.pid, 20_000)
    scene.kill()
    [file] = (scene.folder / "state" / "journal").glob("*/*/chunks.pfc")
    with file.open("r+b") as chunks:
        chunks.truncate(file.stat().st_size - 1000)


def swept_journal(scene: Scene) -> None:
    """A record that promises a retry, and raw files that are gone."""
    under = fused("counting", "sdk", COLLATING)
    under(scene)
    shutil.rmtree(scene.folder / "state" / "journal")


def an_event(name: str, start: float, duration: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 2, "ts": start, "dur": duration, **more}


CHROME = {
    "schemaVersion": 1,
    "traceEvents": [
        an_event("aten::linear", 10, 100, args={"External id": 7, "Input Dims": [[2, 3], []], "Answer": 42}),
        an_event("aten::addmm", 20, 50.125, args={"External id": 8}),
        an_event("cudaLaunchKernel", 30, 5, cat="cuda_runtime", args={"External id": 8, "correlation": 3}),
        an_event(
            "gemm",
            60,
            40,
            cat="kernel",
            pid=0,
            tid=7,
            args={"External id": 8, "correlation": 3, "device": 0, "stream": 7},
        ),
        {"ph": "i", "s": "t", "cat": "mark", "name": "here", "pid": 1, "tid": 2, "ts": 15},
        {"ph": "s", "id": 3, "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 2, "ts": 31},
        {"ph": "f", "bp": "e", "id": 3, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 60},
        {"ph": "?", "name": "of a later version"},
    ],
}
LEGACY = [
    {"ph": "B", "name": "mul", "pid": 1, "tid": 2, "ts": 1, "cat": "Operator"},
    {"ph": "E", "name": "mul", "pid": 1, "tid": 2, "ts": 9, "cat": "Operator"},
]


def files_of_all_formats(folder: Path) -> list[Path]:
    """One small trace of each format that is imported; a bundle is made of one of them."""
    folder.mkdir()
    (folder / "kineto.json").write_text(json.dumps(CHROME))
    (folder / "kineto.json.gz").write_bytes(gzip.compress(json.dumps({**CHROME, "deviceProperties": []}).encode()))
    (folder / "cut.json").write_text(json.dumps(CHROME)[:-60])
    (folder / "gpu.xplane.pb").write_bytes(random_xspace.gpu_space(3))
    (folder / "tpu.xplane.pb").write_bytes(random_xspace.tpu_space(3))
    nvprof.training_step(folder / "step.sqlite")
    (folder / "chunks.pfc").write_bytes((earlier_agent.RECORDED / "chunks.pfc").read_bytes())
    return sorted(path for path in folder.iterdir() if path.is_file())


def library(scene: Scene) -> None:
    """Traces of every format, every way to end, pins, shares, evictions; killed at rest, so that the WAL is there."""
    captures = scene.start()
    assert scene.daemon is not None
    ask = lambda *words: done(scene.daemon, *words)  # noqa: E731
    files = scene.folder / "files"
    for file in files_of_all_formats(files):
        ask("import", str(file))
    legacy = files / "legacy.json"
    legacy.write_text(json.dumps(LEGACY))
    ask("import", "--dialect", "torch-legacy", str(legacy))
    listed = {trace["title"]: trace["id"] for trace in earlier_state.told(scene.daemon, "list")}
    ask("export", listed["kineto.json"], "-f", "bundle", "-o", str(files / "kineto.pfb"))
    ask("import", str(files / "kineto.pfb"))
    ask("pin", listed["kineto.json"])
    ask("pin", listed["cut.json"])
    ask("unpin", listed["cut.json"])
    ask("share", listed["gpu.xplane.pb"], "--with", "nobody")
    ask("share", listed["step.sqlite"], "--with", "*")
    ask("rm", listed["tpu.xplane.pb"])
    ends(scene, captures)
    until(lambda: all(on_disk(scene)), "every end is on the disk")
    scene.kill()
    shutil.rmtree(files)


def on_disk(scene: Scene) -> Iterator[bool]:
    """Of each capture: whether its record says its end. Watchers of earlier builds heard of it before."""
    for path in (scene.folder / "state" / "records" / "captures").glob("*.json"):
        yield json.loads(path.read_text())["finished_ns"] is not None


def ends(scene: Scene, captures: Captures) -> None:
    """Captures that end in every terminal state."""
    captures.ended(begun(captures, scene.target("whole"), "sdk", duration_ns=200_000_000))  # stored
    captures.ended(begun(captures, scene.target("kineto"), "kineto", duration_ns=200_000_000))
    captures.ended(begun(captures, scene.target("busy"), "pyspy", duration_ns=500_000_000))
    captures.ended(begun(captures, scene.target("refusing"), "sdk"))  # refused
    counting = scene.target("counting")
    first = begun(captures, counting, "sdk")
    reaches(captures, first, pb.STATE_RECORDING)
    captures.ended(captures.start(counting.pid, source="sdk", duration_ns=10**9).id)  # busy
    scene.stored_chunks(counting.pid, 10_000)
    counting.kill()
    captures.ended(first)  # partial: the target ended
    silent = scene.target("kineto-silent")
    cancelled = begun(captures, silent, "kineto")
    captures.stop(cancelled)  # cancelled
    taken = scene.target("kineto-taken")
    failed = begun(captures, taken, "kineto", duration_ns=200_000_000)
    hear(taken, "asked")
    taken.kill()
    captures.ended(failed)  # failed: it ended without a file
    busy = scene.target("busy")
    asked = pb.StartCaptureRequest(
        selector=pb.Selector(pids=[busy.pid]),
        options=pb.Options(duration_ns=10**9, source="jax", strict=True),
        request_id="once",
    )
    captures.ended(captures.call("StartCapture", asked).id)  # refused: there is no such source in it


def done(daemon: RunningDaemon | None, *words: str) -> str:
    assert daemon is not None
    code, out, err = earlier_state.profctl(daemon, *words)
    assert code == 0, f"{words}: {err}"
    return out


def evicted(scene: Scene) -> None:
    """A store at its limit: what went is in the audit log, and a pin has kept one."""
    file = scene.folder / "trace.json"
    rows = [an_event(f"op {i * 7919 % 1009}", i, 0.5, args={"x": i * i}) for i in range(100)]
    file.write_text(json.dumps({"traceEvents": rows}))
    scene.start()
    assert scene.daemon is not None
    done(scene.daemon, "import", str(file))
    done(scene.daemon, "pin")
    [first] = earlier_state.told(scene.daemon, "list")
    assert scene.daemon.stop() == 0
    scene.start("", "--store-bytes", str(3 * first["bytes"]))
    for _ in range(3):
        done(scene.daemon, "import", str(file))
    audit = (scene.folder / "state" / "audit.jsonl").read_text()
    assert "trace.evict" in audit, "nothing was evicted"
    scene.kill()


def for_all_users(scene: Scene) -> None:
    """A daemon of root: somebody's trace, what they share, their capture that was killed while it recorded."""
    captures = scene.start()
    assert scene.daemon is not None
    whole = scene.target("whole", UID)
    offered(captures, whole.pid, "sdk")
    theirs(scene, "start", "--pid", whole.pid, "--duration", "0.2s", "--source", "sdk", "--force")
    [trace] = json.loads(theirs(scene, "list", "--json"))
    theirs(scene, "share", trace["id"], "--with", "nobody")
    counting = scene.target("counting", UID)
    offered(captures, counting.pid, "sdk")
    theirs(scene, "start", "--pid", counting.pid, "--duration", "500s", "--source", "sdk", "--force", "--detach")
    scene.stored_chunks(counting.pid, 20_000)
    scene.kill()


def theirs(scene: Scene, *words: object) -> str:
    """`profctl` of that user; what it prints."""
    answer = people.profctl(UID, scene.folder, *words)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


SCENARIOS: dict[str, Callable[[Scene], None]] = {
    "under-way": under_way,
    "several-targets": several_targets,
    "collating-sdk": fused("counting", "sdk", COLLATING),
    "collating-kineto": fused("kineto", "kineto", COLLATING),
    "collating-pyspy": fused("busy", "pyspy", COLLATING),
    "taking-kineto": fused("kineto", "kineto", TAKING),
    "adopting": fused("whole", "sdk", ADOPTING),
    "adopting-within": fused("whole", "sdk", ADOPTING),
    "adopted": fused("whole", "sdk", ADOPTED),
    "removing-sdk": fused("whole", "sdk", REMOVING),
    "removing-kineto": fused("kineto", "kineto", REMOVING),
    "import-cut-off": import_cut_off,
    "torn-journal": torn_journal,
    "swept-journal": swept_journal,
    "library": library,
    "evicted": evicted,
    "all-users": for_all_users,
}


def make(name: str) -> None:
    """Run a scenario, pack what it left, and write down what a daemon makes of it."""
    folder = Path(tempfile.mkdtemp(prefix="pd-", dir="/tmp"))
    if name == "all-users":
        folder.chmod(0o755)
    scene = Scene(folder, user=name != "all-users")
    archive = earlier_state.STATES / f"{name}.tar.xz"
    try:
        SCENARIOS[name](scene)
        earlier_state.pack(folder, archive)
    finally:
        if scene.daemon is not None:
            scene.kill()
        shutil.rmtree(folder)
    print(f"{name}: {archive.stat().st_size} bytes")
    expect(name)


def expect(name: str) -> None:
    """Write down what a daemon of now makes of it."""
    user = name != "all-users"
    found = {"user": user, "found": earlier_state.recover(name, user=user)}
    (earlier_state.STATES / f"{name}.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


# --- an agent, its arena, and its chunks ---

PROGRAM = """
import profclient, sys
from profclient import record_function
print("ready", flush=True)
sys.stdin.readline()
for number in range(1500):
    with record_function("outer", **({"number": number} if number % 100 == 0 else {})):
        with record_function(f"inner {number % 7}"):
            profclient.counter("n", number)
print("done", flush=True)
sys.stdin.read()
"""


def record_agent() -> None:
    """Everything that a real agent says in one recording, the memory of its arena, and the chunks that come of it."""
    with tempfile.TemporaryDirectory(prefix="pd") as folder:
        agents = Agents(Path(folder))
        job = agents.job(PROGRAM)
        link = agents.daemon.accept()
        armed = link.arm("ranges", arena=16 * MiB, strings=16 * MiB // 3)
        job.say("go")
        assert job.line() == "done"
        stopped = link.stop()
        size = os.fstat(armed.fd).st_size
        memory = bytearray(os.pread(armed.fd, size, 0))
        os.close(armed.fd)
        hello = {key: value for key, value in link.hello.fields.items() if key not in ("pid", "start")}
        said = {
            "hello": hello,
            "armed": armed.fields,
            "statuses": [status.fields for status in link.statuses],
            "stopped": stopped.fields,
        }
        link.release()
        agents.close()
    earlier_agent.RECORDED.mkdir(exist_ok=True)
    (earlier_agent.RECORDED / "arena.xz").write_bytes(lzma.compress(bytes(memory), preset=9))
    (earlier_agent.RECORDED / "agent.json").write_text(json.dumps(said, indent=1) + "\n")
    record_chunks()


def record_chunks() -> None:
    """What the streamer made of that arena, and the rows of the trace."""
    folder = Path(tempfile.mkdtemp(prefix="pd-", dir="/tmp"))
    scene = Scene(folder)
    try:
        captures = scene.start(REMOVING)
        with contextlib.suppress(Exception):
            captures.ended(begun(captures, scene.target("whole"), "sdk", duration_ns=200_000_000))
        scene.dies()
        [chunks] = (folder / "state" / "journal").glob("*/*/chunks.pfc")
        shutil.copy(chunks, earlier_agent.RECORDED / "chunks.pfc")
        captures = scene.start()
        assert scene.daemon is not None
        [trace] = earlier_state.told(scene.daemon, "list")
        answer = {name: earlier_state.rows(scene.daemon, trace["id"], name) for name in earlier_state.QUESTIONS}
        (earlier_agent.RECORDED / "rows.json.xz").write_bytes(lzma.compress(json.dumps(answer).encode(), preset=9))
        print(f"an agent with {trace['events']} events")
    finally:
        scene.kill()
        shutil.rmtree(folder)


def main(names: list[str]) -> None:
    """Those that are named, else all, the agent first. `expect NAME …`: only what a daemon makes of them."""
    if os.getuid():
        sys.exit("the corpus is made by root: it holds what belongs to several users")
    if names[:1] == ["expect"]:
        for name in names[1:] or SCENARIOS:
            expect(name)
        return
    if not names or "agent" in names:
        record_agent()
    for name in names or SCENARIOS:
        if name != "agent":
            make(name)


if __name__ == "__main__":
    main(sys.argv[1:])

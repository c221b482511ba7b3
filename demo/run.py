"""`make demo`: profd, a real training loop, captures of it from the outside and from the inside, and what to try next.

Everything runs as you, in a folder of its own that is removed at the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
WAIT_SECONDS = 120.0


class DemoFailed(Exception):
    """Something of the demo did not come up; str() says what."""


def wait_until(what: str, holds: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Until a condition holds. Raises DemoFailed when it does not, or when the process ends first."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if process.poll() is not None:
            raise DemoFailed(f"{what}: the process ended with exit code {process.returncode}")
        if time.monotonic() > deadline:
            raise DemoFailed(f"{what}: nothing in {WAIT_SECONDS:.0f} s")
        time.sleep(0.1)


@contextmanager
def running(command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended with the block; its output goes to a file."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def profctl(environment: dict[str, str], *arguments: str) -> int:
    """Run profctl as you would, showing the command."""
    print(f"\n$ profctl {' '.join(arguments)}", flush=True)
    return subprocess.run([str(BIN / "profctl"), *arguments], env=environment, check=False).returncode


def trains(environment: dict[str, str], state: Path, pid: int, source: str) -> bool:
    """The loop has begun (its first step imports half of PyTorch), and the daemon can record it through this source."""
    if "training" not in (state / "train.log").read_text():
        return False
    done = subprocess.run(
        [str(BIN / "profctl"), "ps", "--json", "--pid", str(pid)],
        env=environment,
        capture_output=True,
        check=False,
    )
    return done.returncode == 0 and any(source in target["sources"] for target in json.loads(done.stdout))


def show(environment: dict[str, str], state: Path, daemon: subprocess.Popen[bytes]) -> int:
    """The training loop, its captures, and the answers."""
    code = show_sampled(environment, state) or show_attached(environment, state)
    if code:
        return code
    print(f"""
Those were real captures of running processes. To go on with jobs of your own:

  {BIN}/profd --user &                                     the daemon, for you alone
  {BIN}/profctl run -- python train.py &                   any Python job
  {BIN}/profctl ps                                         what can be profiled
  {BIN}/profctl start --pid PID --duration 5s              op by op (a program that was started otherwise: sampled)
  {BIN}/profctl where --pid PID                            its stacks right now
  {BIN}/profctl export -f chrome -o trace.json             for https://ui.perfetto.dev""")
    return daemon.poll() or 0


def show_sampled(environment: dict[str, str], state: Path) -> int:
    """The loop as it is, sampled from outside."""
    print("A PyTorch training loop (demo/train.py) starts, and knows nothing of profd.")
    with running([sys.executable, str(HERE / "train.py")], environment, state / "train.log") as job:
        wait_until("the training loop begins", lambda: trains(environment, state, job.pid, "pyspy"), job)
        profctl(environment, "ps", "--pid", str(job.pid))
        code = profctl(environment, "start", "--pid", str(job.pid), "--duration", "3s")
        if code:
            return code
        return profctl(environment, "top", "--limit", "12")


def show_attached(environment: dict[str, str], state: Path) -> int:
    """The same loop, recorded from the inside."""
    print("\nThe same loop, started with `profctl run`: recorded from the inside, operators by an observer of ours.")
    if code := profctl(environment, "torch", "build"):
        return code
    print(f"\n$ profctl run -- python {HERE.name}/train.py &", flush=True)
    command = [str(BIN / "profctl"), "run", "--", sys.executable, str(HERE / "train.py")]
    with running(command, environment, state / "train.log") as job:
        wait_until("the training loop attaches", lambda: trains(environment, state, job.pid, "sdk"), job)
        profctl(environment, "ps", "--pid", str(job.pid))
        code = profctl(environment, "start", "--pid", str(job.pid), "--duration", "1s", "--stacks", "--modules")
        return code or profctl(environment, "top", "--group-by", "module", "--limit", "12")


def main() -> int:
    """The exit code of the demo."""
    with tempfile.TemporaryDirectory(prefix="profd-demo-") as folder:
        state = Path(folder)
        socket = state / "profd.sock"
        environment = os.environ | {
            "PROFD_ADDRESS": f"unix:{socket}",
            "XDG_CACHE_HOME": str(state / "cache"),
        }
        command = [str(BIN / "profd"), "--user", "--state-dir", str(state / "state"), "--socket", str(socket)]
        command += ["--metrics", "off"]
        try:
            with running(command, environment, state / "profd.log") as daemon:
                wait_until("profd starts", socket.exists, daemon)
                return show(environment, state, daemon)
        except DemoFailed as error:
            print(f"the demo failed: {error}", file=sys.stderr)
            for log in ("profd.log", "train.log"):
                if (state / log).exists():
                    print(f"--- {log}\n{(state / log).read_text()[-3000:]}", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())

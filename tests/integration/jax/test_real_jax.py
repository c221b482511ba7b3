"""JAX and TensorFlow processes, found by pid and captured through the daemon."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.conftest import Host, sources_of
from tests.support.daemon import running_daemon
from tests.support.jax_jobs import XlaJob, jax_job, needs_jax, needs_tensorflow, tensorflow_job
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jax")]


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with running_daemon(environ={}) as daemon:
        yield Host(daemon)


@pytest.fixture(scope="module")
def job(host: Host) -> Iterator[XlaJob]:
    with jax_job() as running:
        wait_until_found(host, running)
        yield running


def wait_until_found(host: Host, job: XlaJob) -> None:
    """A starved server is silent to the first question."""
    until(lambda: "jax" in sources_of(host, job.pid), "its profiler server is found")


def names(host: Host, trace: str) -> set[str]:
    return {row["name"] for row in host.profctl("top", trace, "--raw", "--json").json}


@needs_jax
def test_ps_names_the_source(host: Host, job: XlaJob) -> None:
    (target,) = host.profctl("ps", "--pid", str(job.pid), "--json").json
    assert target["framework"] == "jax"
    assert target["sources"][0] == "jax"
    assert target["state"] == "ready"


@needs_jax
def test_a_window_is_captured_by_pid(host: Host, job: XlaJob) -> None:
    done = host.profctl("start", "--pid", str(job.pid), "--duration", "500ms", "--json")
    assert done.code == 0, done.err + done.out
    (target,) = done.json["targets"]
    assert (target["state"], target["sources"]) == ("stored", ["jax"])
    assert target["events"] > 0
    assert "my_step" in names(host, target["trace"])


@needs_jax
def test_a_longer_one_is_several_windows_in_one_trace(host: Host, job: XlaJob) -> None:
    done = host.profctl("start", "--pid", str(job.pid), "--duration", "1500ms", "--json")
    assert done.code == 0, done.err + done.out
    (target,) = done.json["targets"]
    assert any(text.startswith("duration:") for text in target["not_honoured"])
    assert "my_step" in names(host, target["trace"])
    asked = "select count(distinct thread) as threads, count(*) as steps from events where name = 'my_step'"
    ((threads, steps),) = host.profctl("sql", target["trace"], asked, "--json").json["rows"]
    assert threads == 1, "the windows' lines are not one track"
    assert steps > 1
    strict = host.profctl("start", "--pid", str(job.pid), "-d", "2s", "--strict", "--source", "jax", "--json")
    assert strict.json["targets"][0]["reason"] == "not_honoured"


@needs_jax
def test_a_stop_keeps_what_there_is(host: Host, job: XlaJob) -> None:
    started = host.profctl("start", "--pid", str(job.pid), "-d", "60s", "--force", "--detach", "--json")
    assert started.code == 0, started.err
    capture = started.json["capture"]
    until_recording(host, capture)
    host.profctl("stop", capture)
    done = host.profctl("wait", capture, "--json")
    (target,) = done.json["targets"]
    # Stopped before the process had begun it is cancelled.
    assert target["state"] in ("stored", "cancelled"), target


def until_recording(host: Host, capture: str) -> None:
    for _ in range(1000):
        (found,) = [c for c in host.profctl("captures", "--json").json if c["capture"] == capture]
        if found["state"] not in ("requested", "armed"):
            return
    raise AssertionError(found)


@needs_jax
def test_a_process_that_ends_meanwhile(host: Host) -> None:
    with jax_job() as short_lived:
        wait_until_found(host, short_lived)
        started = host.profctl("start", "--pid", str(short_lived.pid), "-d", "60s", "--force", "--detach", "--json")
        capture = started.json["capture"]
        until_recording(host, capture)
        short_lived.kill()
        (target,) = host.profctl("wait", capture, "--json").json["targets"]
    assert (target["state"], target["reason"]) == ("failed", "target_ended"), target


def keep_last(host: Host, job: XlaJob) -> dict[str, Any]:
    """What came of `--last 1s`, stopped after more than that."""
    started = host.profctl("start", "--pid", str(job.pid), "--last", "1s", "-d", "60s", "--detach", "--json")
    assert started.code == 0, started.err
    capture = started.json["capture"]
    folder = host.daemon.state_dir

    def let_go() -> bool:
        numbers = [int(path.name[9:15]) for path in folder.rglob("snapshot-*.xplane.pb")]
        return bool(numbers) and min(numbers) > 1

    until(let_go, "the first snapshot is let go")
    host.profctl("stop", capture)
    (target,) = host.profctl("wait", capture, "--json").json["targets"]
    return target


@needs_jax
def test_the_last_seconds_of_a_job(host: Host, job: XlaJob) -> None:
    target = keep_last(host, job)
    assert target["state"] == "stored", target
    assert "my_step" in names(host, target["trace"])
    phases = {phase["name"]: phase["duration_ns"] for phase in target["waterfall"]}
    assert phases["let go"] > 0
    # Between two snapshots nothing is recorded: of the last second, too.
    assert phases["window"] + phases["gaps"] >= 1_000_000_000
    # Nothing of ours is left in it: the next capture is not busy.
    done = host.profctl("start", "--pid", str(job.pid), "--duration", "100ms", "--json")
    assert done.code == 0, done.out


@needs_jax
def test_the_last_seconds_before_a_process_ended(host: Host) -> None:
    with jax_job() as short_lived:
        wait_until_found(host, short_lived)
        started = host.profctl(
            "start", "--pid", str(short_lived.pid), "--last", "5s", "-d", "60s", "--detach", "--json"
        )
        capture = started.json["capture"]
        until(lambda: len(list(host.daemon.state_dir.rglob("snapshot-*.xplane.pb"))) > 1, "snapshots")
        short_lived.kill()
        (target,) = host.profctl("wait", capture, "--json").json["targets"]
    assert (target["state"], target["reason"]) == ("partial", "target_ended"), target
    assert "my_step" in names(host, target["trace"])


@needs_jax
def test_a_job_that_profiles_itself_is_busy(host: Host, tmp_path: Path) -> None:
    with jax_job(own_profile=tmp_path) as own:
        own.expect("profiling")
        wait_until_found(host, own)
        done = host.profctl("start", "--pid", str(own.pid), "-d", "100ms", "--json")
    assert done.code == 5, done.out
    assert done.json["targets"][0]["reason"] == "other_profiler"


@needs_jax
def test_without_a_server_it_is_sampled_and_told_why(host: Host) -> None:
    with jax_job(server=False) as plain:
        (target,) = host.profctl("ps", "--pid", str(plain.pid), "--json").json
        assert "jax" not in target["sources"]
        done = host.profctl("start", "--pid", str(plain.pid), "-d", "100ms", "--source", "jax", "--json")
    assert done.code == 1
    assert "start_server" in done.json["targets"][0]["message"]


@needs_tensorflow
def test_a_tensorflow_process(host: Host) -> None:
    with tensorflow_job() as job:
        wait_until_found(host, job)
        done = host.profctl("start", "--pid", str(job.pid), "--duration", "500ms", "--json")
    assert done.code == 0, done.err + done.out
    (target,) = done.json["targets"]
    assert (target["state"], target["sources"]) == ("stored", ["jax"])
    assert target["events"] > 0


@needs_tensorflow
def test_the_last_seconds_of_a_tensorflow_process(host: Host) -> None:
    with tensorflow_job() as job:
        wait_until_found(host, job)
        target = keep_last(host, job)
    assert target["state"] == "stored", target
    assert target["events"] > 0


def test_a_plain_python_process_is_not_asked(host: Host) -> None:
    program = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as plain:
        assert plain.stdout is not None
        plain.stdout.readline()
        (target,) = host.profctl("ps", "--pid", str(plain.pid), "--json").json
        assert "jax" not in target["sources"]
        plain.kill()

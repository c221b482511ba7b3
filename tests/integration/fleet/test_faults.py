"""Ranks that end, start anew or move, a host that hangs, a client that dies: what is missing is said, and why."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.integration.fleet.conftest import Done, TwoHosts, stored
from tests.integration.fleet.test_two_hosts import until_it_says
from tests.support.attached import Attached, Captures, attached
from tests.support.daemon import start_daemon
from tests.support.waiting import until


@contextmanager
def rank(two: TwoHosts, job: str, number: int, host: int) -> Iterator[Attached]:
    """One more process of a job of the test's own."""
    environ = {"RANK": str(number), "WORLD_SIZE": "2", "SLURM_JOB_ID": job}
    with attached(two.daemons[host], two.folder, environ=environ) as found:
        yield found


@pytest.fixture
def job() -> str:
    return uuid.uuid4().hex


def start(two: TwoHosts, job: str, *more: str, hosts: str = "n[1-2]") -> tuple[str, ...]:
    return ("start", "--hosts", hosts, "--via", two.via, "--job", job, "--source", "sdk", "--json", *more)


def ended(process: subprocess.Popen[str]) -> Done:
    out, err = process.communicate(timeout=240)
    assert "Traceback" not in err, err
    return Done(process.returncode, out, err)


def states(answer: dict[str, Any]) -> dict[int, str]:
    """Of what has a trace, by rank."""
    return {
        target["rank"]: target["state"]
        for host in answer["hosts"]
        if host["capture"] is not None
        for target in host["capture"]["targets"]
        if target["trace"]
    }


def newest(two: TwoHosts) -> pb.Capture:
    """The latest capture of the first host's; an empty one where it has none."""
    found = Captures(two.daemons[0]).call("ListCaptures", pb.ListCapturesRequest(limit=1)).captures
    return found[0] if found else pb.Capture()


def recording(two: TwoHosts, job: str, number: int) -> bool:
    """Whether every host records a process of this job; `number`: hosts."""
    found = [
        target
        for daemon in two.daemons
        for capture in Captures(daemon).call("ListCaptures", pb.ListCapturesRequest(limit=3)).captures
        for target in capture.targets
        if target.job == job and target.state == pb.STATE_RECORDING
    ]
    return len(found) >= number


def test_a_rank_that_ends_keeps_what_it_recorded_and_is_named(two: TwoHosts, job: str):
    with rank(two, job, 0, 0), rank(two, job, 1, 1) as second:
        process = two.begin(*start(two, job, "--duration", "100s"))
        until(lambda: recording(two, job, 2), "both record")
        second.counts_on()
        second.process.kill()
        until(lambda: recording(two, job, 1) and not recording(two, job, 2), "one has ended, and the other goes on")
        process.send_signal(signal.SIGINT)
        done = ended(process)
    assert (done.code, states(done.json)) == (6, {0: "stored", 1: "partial"}), done.out
    (gone,) = [
        target
        for host in done.json["hosts"]
        for target in host["capture"]["targets"]
        if target["trace"] and target["rank"] == 1
    ]
    assert "ended" in gone["message"], gone


def test_a_rank_that_starts_anew_is_of_the_next_capture(two: TwoHosts, job: str):
    """GIVEN a recorded rank WHEN it ends and another process takes its number THEN no trace has both."""
    with rank(two, job, 0, 0) as first:
        process = two.begin(*start(two, job, "--rank", "0", "--duration", "100s", hosts="n1"))
        until(lambda: recording(two, job, 1), "it records")
    with rank(two, job, 0, 0) as second:
        done = ended(process)  # of its own accord: nobody is left to be recorded
        assert states(done.json) == {0: "partial"}, done.out
        assert [target["pid"] for target in done.json["hosts"][0]["capture"]["targets"]] == [first.pid]
        again = two.profctl(*start(two, job, "--rank", "0", "--duration", "200ms", hosts="n1"))
        assert (again.code, states(again.json)) == (0, {0: "stored"}), again.out
        assert [target["pid"] for target in again.json["hosts"][0]["capture"]["targets"]] == [second.pid]


def test_a_rank_that_moves_is_recorded_where_it_is(two: TwoHosts, job: str):
    asked = start(two, job, "--rank", "0", "--duration", "200ms")
    for host in (0, 1):
        with rank(two, job, 0, host):
            done = two.profctl(*asked)
            assert [(name, number) for name, number, _ in stored(done.json)] == [(f"n{host + 1}", 0)], done.out
    gone = two.profctl(*asked)
    assert (gone.code, gone.json["missing_ranks"]) == (3, [0])


@pytest.fixture
def hung(two: TwoHosts) -> Iterator[str]:
    """A host whose daemon takes connections, and never answers."""
    folder = two.folder / "n9"
    folder.mkdir(exist_ok=True)
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as calls,
    ):
        for each, name in ((control, "control.sock"), (calls, "profd.sock")):
            each.bind(str(folder / name))
            each.listen(64)
        yield "n9"
    for name in ("control.sock", "profd.sock"):
        (folder / name).unlink()


def test_a_host_that_takes_connections_and_never_answers(two: TwoHosts, hung: str):
    done = two.profctl(*two.start("--rank", "0", "--duration", "200ms", "--json", hosts=f"n1,{hung}"))
    assert (done.code, done.json["state"]) == (6, "partial")
    (silent,) = [host for host in done.json["hosts"] if host["host"] == hung]
    assert (silent["stand"], "has said nothing" in silent["message"]) == ("out", True), silent


PHASES = {
    "finding": ("2 finding", ("--rank", "0", "--duration", "1s"), "n1,n9"),
    "waiting for the moment": ("begin together", ("--rank", "0", "--duration", "300ms", "--start-in", "10s"), "n1"),
}


@pytest.mark.parametrize("phase", PHASES)
def test_a_client_that_is_killed_leaves_nothing_that_does_not_end(two: TwoHosts, hung: str, phase: str):
    said, more, hosts = PHASES[phase]
    process = two.begin(*two.start(*more, hosts=hosts))
    until_it_says(process, said)
    until(two.relays, "a relay runs")
    if phase != "finding":
        until(lambda: newest(two).HasField("fleet") and newest(two).state < pb.STATE_STORED, "the daemon has it")
    process.kill()
    process.communicate()
    until(lambda: not two.relays(), "its relays end")
    if phase == "finding":
        return
    done = two.profctl("wait", newest(two).fleet.id, "--json")
    assert (done.code, done.json["state"]) == (0, "stored")


def test_a_client_that_is_killed_while_it_collects_keeps_nobody_from_doing_so(two: TwoHosts, tmp_path: Path):
    fleet = two.profctl(*two.start("--rank", "0", "--duration", "1s", "--json", hosts="n1")).json["capture"]
    collecting = two.begin("collect", fleet, "--to", str(tmp_path), "--rate", "1kB")
    until(lambda: any(tmp_path.glob(".capture=*.part")) and two.relays(), "traces arrive")
    collecting.kill()
    collecting.communicate()
    until(lambda: not two.relays(), "its relay ends")
    assert not (tmp_path / f"capture={fleet}").exists(), "nothing is seen before it is whole"
    done = two.profctl("collect", fleet, "--to", str(tmp_path), "--json")
    assert (done.code, len(done.json["traces"])) == (0, 1), done.err
    asked = two.profctl("--store", str(tmp_path), "top", fleet, "--json")
    assert asked.code == 0, asked.err


def test_two_hosts_whose_processes_say_that_they_are_one_rank(two: TwoHosts, job: str, tmp_path: Path):
    """GIVEN a process that lies about its rank WHEN all are recorded THEN both are there, and the answer says so."""
    with rank(two, job, 0, 0), rank(two, job, 0, 1):
        done = two.profctl(*start(two, job, "--duration", "200ms"))
        assert [(host, number) for host, number, _ in stored(done.json)] == [("n1", 0), ("n2", 0)]
        two.profctl("collect", done.json["capture"], "--to", str(tmp_path))
        answer = two.profctl("top", done.json["capture"], "--by", "host", "--json").json
        assert answer["shared_ranks"] == [0]
        assert {one["host"] for one in answer["traces"]} == {"n1", "n2"}


def test_a_job_s_name_is_a_word_and_no_path(two: TwoHosts, tmp_path: Path):
    """GIVEN a job whose id is a path, an option or a command WHEN it is recorded THEN that is its name."""
    for name in ("../../x", "-oProxyCommand=x", "$(reboot);y"):
        with rank(two, name, 0, 0):
            done = two.profctl(*of_job(two, name), "--to", str(tmp_path))
            assert (done.code, states(done.json)) == (0, {0: "stored"}), done.out
            (trace,) = done.json["collected"]["traces"]
            meta = json.loads((tmp_path / f"capture={done.json['capture']}" / trace["path"] / "meta.json").read_text())
            assert meta["job"] == name
    assert {path.name.partition("=")[0] for path in tmp_path.iterdir()} == {"capture"}


@pytest.mark.parametrize("name", ["a\tb", "\N{RIGHT-TO-LEFT OVERRIDE}x", "x" * 257])
def test_a_job_s_name_that_no_job_has_is_refused(two: TwoHosts, name: str):
    done = two.profctl(*of_job(two, name))
    assert (done.code, "a job is a printable word" in done.json["hosts"][0]["message"]) == (2, True), done.out


def of_job(two: TwoHosts, name: str) -> tuple[str, ...]:
    way = ("start", "--hosts", "n1", "--via", two.via, f"--job={name}", "--source", "sdk", "--json")
    return (*way, "--rank", "0", "--duration", "200ms")


AHEAD_SECONDS = 180


@pytest.fixture
def minutes_ahead(tmp_path: Path) -> dict[str, str]:
    """What makes the wall clock of a process one of minutes ahead."""
    library, file = tmp_path / "stepped_clock.so", tmp_path / "step"
    source = Path(__file__).parents[2] / "support" / "stepped_clock.c"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    file.write_bytes(AHEAD_SECONDS.to_bytes(8, "little", signed=True))
    return {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(file)}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_a_host_whose_clock_is_off_by_minutes_begins_with_the_others(
    two: TwoHosts, job: str, minutes_ahead: dict[str, str]
):
    (two.folder / "n8").mkdir()
    daemon = start_daemon(two.folder / "n8", environ=minutes_ahead)
    words = " ".join(f"{name}={value}" for name, value in minutes_ahead.items())
    via = (
        "sh -c 'test {host} = n8 && set -- "
        + words
        + f' "$@"; exec env PROFD_ADDRESS=unix:{two.folder}/{{host}}/profd.sock "$@"\' sh'
    )
    environ = {"RANK": "2", "WORLD_SIZE": "3", "SLURM_JOB_ID": job, **minutes_ahead}
    try:
        with rank(two, job, 0, 0), rank(two, job, 1, 1), attached(daemon, two.folder, environ=environ):
            asked = ("start", "--hosts", "n[1-2],n8", "--via", via, "--job", job, "--source", "sdk", "--json")
            done = two.profctl(*asked, "--duration", "200ms")
            answer = done.json
            begun = {host: start_ns for host, _, start_ns in stored(answer)}
            assert sorted(begun) == ["n1", "n2", "n8"], done.out
            # What its clock said was read beside a steadier one, and a busy host comes between: 0.2 ms were seen.
            assert begun["n8"] >= answer["start_ns"] + AHEAD_SECONDS * 10**9 - 10**7, "by its own clock"
            apart = {host["host"]: host["clock"]["apart_ns"] for host in answer["hosts"]}
            assert (apart["n1"], apart["n2"]) == (0, 0)
            assert round(apart["n8"] / 1e9) == AHEAD_SECONDS
            shown = two.profctl("wait", answer["capture"], "--json").json
            assert shown["start_ns"] == answer["start_ns"]
    finally:
        daemon.stop()

"""One capture of two hosts: relays, daemons and ranks are real, and what carries the relays is `env`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pyarrow.dataset
import pytest

from tests.integration.fleet.conftest import PROFCTL, TwoHosts, stored
from tests.support.attached import Captures
from tests.support.waiting import until


def targets(answer: dict, host: str) -> list[dict]:
    (found,) = [one["capture"]["targets"] for one in answer["hosts"] if one["host"] == host]
    return found


def until_it_says(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"it never said {words!r}")


def test_both_hosts_begin_together_and_the_answer_has_both(two: TwoHosts):
    done = two.profctl(*two.start("--rank", "0-1", "--duration", "200ms", "--json"))
    answer = done.json
    # Each daemon could not record the other's rank with sdk, and says so.
    assert (done.code, answer["state"], answer["missing_ranks"]) == (6, "partial", [])
    begun = stored(answer)
    assert [(host, rank) for host, rank, _ in begun] == [("n1", 0), ("n2", 1)]
    assert all(start >= answer["start_ns"] for _, _, start in begun)
    assert answer["start_ns"] % 1_000_000_000 == 0
    fleets = [host["capture"]["fleet"] for host in answer["hosts"]]
    assert fleets == [{"id": answer["capture"], "host": host, "hosts": 2, "found": "hosts"} for host in ("n1", "n2")]
    assert all(host["clock"]["apart_ns"] == 0 for host in answer["hosts"])
    for verb in ("show", "wait"):
        assert two.profctl(verb, answer["capture"], "--json").json["start_ns"] == answer["start_ns"]
    assert until(lambda: not two.relays(), "the relays end")


def test_ranks_are_where_they_are_and_the_same_verbs_follow(two: TwoHosts, tmp_path: Path):
    done = two.profctl(*two.start("--rank", "0", "--duration", "200ms", hosts="n1"))
    assert done.code == 0
    fleet = done.out.split()[1].rstrip(":")
    assert f"capture {fleet}: stored" in done.out
    assert "1 of 1 host, 1 process; the windows begin together at" in done.err
    assert two.profctl("show", fleet[:8]).out.startswith(f"capture {fleet}: stored")
    shown = two.profctl("show", fleet[:8], "--json").json
    assert [(host["host"], host["stand"]) for host in shown["hosts"]] == [("n1", "over")]
    assert two.profctl("wait", fleet, "--json").json["state"] == "stored"
    assert "recording" not in two.profctl("wait", fleet).err
    # WHEN the file of the user's is gone THEN the hosts know it all the same.
    (two.folder / "xdg" / "profd" / "fleets" / f"{fleet}.json").unlink()
    assert two.profctl("wait", fleet).code == 3
    here = {**two.environ, "PROFD_ADDRESS": f"unix:{two.folder}/n1/profd.sock"}
    part = subprocess.run([*PROFCTL, "show", fleet], env=here, capture_output=True, text=True)
    assert part.stdout.startswith("capture c"), part.stderr
    assert two.profctl("wait", fleet, "--hosts", "n1", "--via", two.via).code == 0
    done = two.profctl("collect", fleet, "--hosts", "n1", "--via", two.via, "--to", str(tmp_path), "--json")
    assert done.code == 0
    marker = json.loads((tmp_path / f"capture={fleet}" / "_COMMIT.json").read_text())
    assert marker == done.json
    (trace,) = marker["traces"]
    (meta,) = [json.loads(path.read_text()) for path in tmp_path.rglob("meta.json")]
    assert meta["host_clock"]["within_ns"] > abs(meta["host_clock"]["ahead_ns"]), "one clock, seen twice"
    assert meta["host_clock"]["synchronised"] in (True, False)
    segments = [str(path) for path in tmp_path.rglob("segment-*.parquet")]
    rows = pyarrow.dataset.dataset(
        segments, partitioning="hive", partition_base_dir=str(tmp_path), format="parquet"
    ).to_table(columns=["capture", "host", "rank", "trace"])
    assert rows.num_rows > 0
    assert {name: set(rows.column(name).to_pylist()) for name in rows.column_names} == {
        "capture": {fleet},
        "host": {"n1"},
        "rank": {0},
        "trace": {trace["trace"]},
    }
    # AND the capture answers from there, though no daemon listens where profctl runs.
    answer = two.profctl("top", fleet[:8], "--by", "host", "--json").json
    assert {row["host"] for row in answer["rows"]} == {"n1"}
    # AND what helps next is a question, and no second copy.
    assert f"next: profctl top {fleet} --by host  (its traces are in {tmp_path})" in two.profctl("show", fleet).out
    # AND the folder answers as a store does, by the name that the client has for the host.
    answer = two.profctl("--store", str(tmp_path), "top", fleet, "--by", "host", "--json").json
    assert answer["capture"] == fleet
    assert {row["host"] for row in answer["rows"]} == {"n1"}
    assert two.profctl("--store", str(tmp_path), "files", fleet, "--check").code == 0
    # AND all of it is one file, with processes named by that host.
    told = two.profctl("export", fleet[:8], "-o", str(tmp_path / "all.json"), "--json").json
    assert [(row["host"], row["title"]) for row in told["traces"]] == [("n1", "rank 0 n1")]
    assert '"rank 0 n1: ' in (tmp_path / "all.json").read_text()
    assert not [name for _, _, names in os.walk(tmp_path) for name in names if name.endswith(".part")]


def test_half_of_the_hosts_are_down(two: TwoHosts):
    done = two.profctl(*two.start("--rank", "0", "--duration", "200ms", hosts="n[1,3-4]"))
    assert done.code == 6
    assert "1 of 3 hosts, 1 process" in done.err
    assert "not n3: no profd listens" in done.err
    assert "missing    n4 takes no part: no profd listens" in done.out
    assert "n4/profd.sock. Start one with" in done.out  # sentences of two lines are one here


def test_hosts_without_the_ranks_are_no_failure_and_ranks_that_nobody_has_are(two: TwoHosts):
    done = two.profctl(*two.start("--rank", "0,7", "--duration", "200ms", "--json", hosts="n1"))
    assert (done.code, done.json["missing_ranks"]) == (6, [7])
    done = two.profctl(*two.start("--rank", "7-8", "--duration", "200ms", hosts="n[1-2]"))
    assert done.code == 3
    assert "ranks that no host has: 7, 8" in done.out


def test_ranks_that_another_capture_holds_are_busy(two: TwoHosts):
    held = two.profctl(*two.start("--rank", "0", "--duration", "60s", "--detach", hosts="n1"))
    assert held.code == 0, held.err
    (fleet,) = [path.stem for path in _newest(two)[:1]]
    done = two.profctl(*two.start("--rank", "0", "--duration", "200ms", "--json", hosts="n1"))
    # Whoever schedules has to try again, too, where another host has none of the ranks, or does not answer.
    others = two.profctl(*two.start("--rank", "0", "--duration", "200ms", hosts="n[1,3]"))
    two.profctl("stop", fleet)
    assert (done.code, done.json["state"], done.json["missing_ranks"]) == (5, "busy", []), done.out
    assert (others.code, "busy       n1: the same command may record more later" in others.out) == (5, True)


def test_ctrl_c_ends_it_on_every_host(two: TwoHosts):
    process = two.begin(*two.start("--rank", "0-1", "--duration", "100s", "--json"))
    recording = [Captures(daemon) for daemon in two.daemons]
    until(lambda: all(_records(captures) for captures in recording), "both record")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert "Traceback" not in err
    assert process.returncode == 6
    assert [(host, rank) for host, rank, _ in stored(json.loads(out))] == [("n1", 0), ("n2", 1)]


def test_ctrl_c_while_a_host_says_nothing(two: TwoHosts):
    """GIVEN a host that takes the connection and never answers WHEN Ctrl-C comes THEN nothing begins or is left."""
    hung = f"600.{int(two.job[:8], 16)}"
    relay = f"exec env PROFD_ADDRESS=unix:{two.folder}/n1/profd.sock"
    via = f"sh -c 'test {{host}} = hung && exec sleep {hung}; {relay} \"$@\"' sh"
    asked = ("start", "--hosts", "n1,hung", "--via", via, "--job", two.job, "--rank", "0", "--duration", "1s", "--json")
    process = two.begin(*asked)
    until(lambda: two.relays() and _running(hung), "both carriers run")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert (process.returncode, "Traceback" in err) == (130, False)
    assert [host["message"] for host in json.loads(out)["hosts"]] == ["stopped before it began"] * 2
    assert not _running(hung)
    assert not two.relays()


def test_a_client_that_dies_leaves_windows_that_end_and_another_takes_it_up(two: TwoHosts):
    process = two.begin(*two.start("--rank", "0", "--duration", "2s", hosts="n1"))
    until_it_says(process, "1 recording")
    process.kill()
    process.communicate()
    (fleet,) = [path.stem for path in _newest(two)[:1]]
    done = two.profctl("wait", fleet, "--json")
    assert (done.code, done.json["state"]) == (0, "stored")
    assert until(lambda: not two.relays(), "its relays end")


def test_a_relay_that_is_killed_is_started_again(two: TwoHosts):
    process = two.begin(*two.start("--rank", "0", "--duration", "2s", "--json", hosts="n1"))
    captures = Captures(two.daemons[0])
    until(lambda: _records(captures), "it records")
    for pid in two.relays():
        os.kill(pid, signal.SIGKILL)
    out, _ = process.communicate(timeout=240)
    assert (process.returncode, json.loads(out)["state"]) == (0, "stored")


def test_one_request_is_one_capture(two: TwoHosts):
    asked = two.start("--rank", "0", "--duration", "200ms", "--json", "--request-id", "nightly", hosts="n1")
    first, second = two.profctl(*asked).json, two.profctl(*asked).json
    assert first["capture"] == second["capture"]
    assert targets(first, "n1")[0]["trace"] == targets(second, "n1")[0]["trace"]


def test_stop_from_another_command(two: TwoHosts):
    done = two.profctl(*two.start("--rank", "0", "--duration", "100s", "--detach", hosts="n1"))
    assert done.code == 0
    (fleet,) = [path.stem for path in _newest(two)[:1]]
    until(lambda: _records(Captures(two.daemons[0])), "it records")
    done = two.profctl("stop", fleet)
    assert (done.code, f"capture {fleet}: stored" in done.out) == (0, True)
    done = two.profctl("steps", fleet)
    assert (done.code, f"`profctl collect {fleet} --to DIR`" in done.err) == (2, True)


def test_a_command_that_waits_no_longer(two: TwoHosts):
    asked = two.start("--rank", "0", hosts="n1")
    done = two.profctl(*asked, "--duration", "1s", "--timeout", "1ms")
    assert (done.code, "nothing has begun on any" in done.err) == (124, True)
    process = two.begin(*asked, "--duration", "100s")
    until(lambda: _records(Captures(two.daemons[0])), "it records")
    done = two.profctl("wait", _newest(two)[0].stem, "--timeout", "1ms")
    assert (done.code, "goes on. `profctl wait" in done.err) == (124, True)
    process.send_signal(signal.SIGINT)
    assert "stored" in process.communicate(timeout=240)[0]


def test_two_names_of_one_host(two: TwoHosts, tmp_path: Path):
    via = f"sh -c 'shift; exec env PROFD_ADDRESS=unix:{two.folder}/n1/profd.sock \"$@\"' sh {{host}}"
    done = two.profctl(
        "start", "--hosts", "a,b", "--via", via, "--job", two.job, "--rank", "0", "--duration", "200ms", "--json"
    )
    assert done.code == 6
    assert sorted(host["stand"] for host in done.json["hosts"]) == ["out", "over"]
    assert any("it is the host that is named" in (host["message"] or "") for host in done.json["hosts"])
    # AND it is asked once afterwards: with every trace twice the folder could not be read.
    fleet = done.json["capture"]
    collected = two.profctl("collect", fleet, "--to", str(tmp_path), "--json")
    assert len(collected.json["traces"]) == 1, collected.err
    answer = two.profctl("--store", str(tmp_path), "top", fleet, "--by", "host", "--json")
    assert len({row["host"] for row in answer.json["rows"]}) == 1, answer.err


def test_where_groups_ranks_of_all_hosts(two: TwoHosts):
    done = two.profctl("where", "--hosts", "n[1-2]", "--via", two.via, "--job", two.job, "--rank", "0-1")
    assert done.code == 0
    assert f"n1 rank 0 pid {two.ranks[0].pid} MainThread" in done.out
    assert f"n2 rank 1 pid {two.ranks[1].pid} MainThread" in done.out
    done = two.profctl("where", "--hosts", "n[2-3]", "--via", two.via, "--job", two.job, "--json")
    assert done.code == 6
    assert {one["host"] for one in done.json} == {"n2", "n3"}
    assert "no profd listens" in done.json[-1]["error"]


def test_a_dry_run_touches_nothing(two: TwoHosts):
    before = len(_newest(two))
    done = two.profctl(*two.start("--rank", "0", "--duration", "200ms", "--dry-run", hosts="n[1,3]"))
    assert done.code == 6
    assert "host n1:" in done.out
    assert "host n3: no profd listens" in done.out
    assert len(_newest(two)) == before


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("start", "--hosts", "n1", "--pid", "1", "--duration", "1s"), "a pid means one process of one host"),
        (("start", "--hosts", "n1", "--rank", "0"), "needs --duration or --iterations"),
        (("start", "--hosts", "-oProxyCommand=x", "--rank", "0", "--duration", "1s"), "no name of a host"),
        (("start", "--hosts", "n1", "--via", "ssh n1", "--rank", "0", "--duration", "1s"), "--via needs {host}"),
        (("start", "--via", "ssh {host}", "--rank", "0", "--duration", "1s"), "--via needs --hosts"),
        (("where", "--hosts", "n1", "--pid", "1"), "a pid means one process of one host"),
        (("wait", "f0", "--hosts", "n1"), "the whole id"),
        (("show", "f0123456789ab", "--hosts", "n1", "--job", "4711"), "--job names a job of Slurm's"),
        (("collect", "f0123456789ab", "--via", "slurm", "--to", "/nowhere"), "--via slurm needs one --job"),
        (("collect", "c0", "--to", "/nowhere"), "no capture of many hosts"),
        (("collect", "f0", "--to", "/nowhere", "--rate", "0"), "would bring nothing"),
        (("top", "fffffffffffff"), "none that was begun or collected here"),
        (("start", "--rank", "1-", "--duration", "1s"), "no number and no range"),
    ],
)
def test_mistakes(two: TwoHosts, arguments: tuple[str, ...], why: str):
    done = two.profctl(*arguments)
    assert (done.code, why in done.err) == (2, True), done.err


def _records(captures: Captures) -> bool:
    from profproto.v1 import capture_pb2 as pb

    found = captures.call("ListCaptures", pb.ListCapturesRequest(limit=1)).captures
    return bool(found) and any(target.state == pb.STATE_RECORDING for target in found[0].targets)


def _running(word: str) -> bool:
    """Whether any process has this word on its command line."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


def _newest(two: TwoHosts) -> list[Path]:
    folder = two.folder / "xdg" / "profd" / "fleets"
    return sorted(folder.glob("f*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)

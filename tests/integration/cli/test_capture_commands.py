"""`profctl ps|start|where|stop|wait|captures` as a user runs them."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.integration.cli.conftest import sources_of
from tests.support.in_proc import children, said_of
from tests.support.python_jobs import JOINING, SAMPLED, SPIN, needs_ptrace, running
from tests.support.torch_jobs import needs_torch
from tests.support.waiting import until

KINETO = ("--source", "kineto", "--force")

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cli")]


def records(host):
    """Whether the capture in work, or the latest one, does."""
    captures = host.profctl("captures", "--json").json
    return any(target["state"] == "recording" for capture in captures for target in capture["targets"])


def test_ps_lists_what_can_be_profiled(host, program):
    targets = {target["pid"]: target for target in host.profctl("ps", "--json").json}
    assert {"pid", "user", "command", "framework", "sources", "state", "reason", "fix", "attached"} <= set(
        targets[program]
    )
    assert targets[program]["framework"] == "python"
    assert "pyspy" in targets[program]["sources"]
    shown = host.profctl("ps", "--pid", str(program))
    assert shown.code == 0
    assert str(program) in shown.out
    assert "FRAMEWORK" in shown.out


def test_ps_leaves_out_what_runs_the_errands_of_the_daemon(host, program):
    begun = children(host.daemon.process.pid)
    begun += [pid for child in begun for pid in children(child)]
    errands = {pid for pid in begun if "profd.targets.errands.server" in said_of(pid, "cmdline").split("\0")}
    listed = {target["pid"] for target in host.profctl("ps", "--all", "--json").json}
    assert errands
    assert program in listed
    assert not listed & errands


def test_a_plain_python_program_is_sampled(host, program):
    done = host.profctl("start", "--pid", str(program), "--duration", SAMPLED, "--json")
    assert done.code == 0, done.err
    (target,) = done.json["targets"]
    assert (done.json["state"], target["state"], target["sources"]) == ("stored", "stored", ["pyspy"])
    assert target["events"] > 0
    assert target["lost"] == []
    rows = host.profctl("top", target["trace"], "--json").json
    assert any("outer" in row["name"] for row in rows)


def test_the_answer_for_people(host, program):
    done = host.profctl("start", "--pid", str(program), "--duration", SAMPLED)
    assert done.code == 0, done.err
    for word in ("stored", "recorded", "top by self time", "waterfall", "next: profctl top"):
        assert word in done.out
    assert "recording" in done.err or "collating" in done.err


def test_rm_of_a_capture_names_its_traces(host, program):
    started = host.profctl("start", "--pid", str(program), "--duration", SAMPLED, "--json").json
    done = host.profctl("rm", started["capture"])
    assert done.code == 3
    assert f"is a capture; its traces are deleted with: profctl rm {started['targets'][0]['trace']}" in done.err


@needs_torch
def test_a_training_loop_is_traced_op_by_op(host, trainer):
    done = host.profctl("start", "--pid", str(trainer), *KINETO, "--duration", "400ms", "--json")
    assert done.code == 0, done.err + done.out
    assert "warning: torch's own profiler can kill the process" in done.err
    (target,) = done.json["targets"]
    assert target["sources"] == ["kineto"]
    rows = host.profctl("top", target["trace"], "--json").json
    assert "aten::linear" in {row["name"] for row in rows}
    summary = host.profctl("show", target["trace"], "--json").json
    assert summary["steps"]["n"] >= 1


@needs_torch
def test_a_training_loop_is_not_put_at_risk_unasked(host, trainer):
    done = host.profctl("start", "--pid", str(trainer), "--duration", "400ms", "--json")
    assert done.code == 0, done.err + done.out
    (target,) = done.json["targets"]
    assert target["sources"] == ["pyspy"]
    assert target["message"].startswith("samples only: PyTorch's operators are recorded in programs that are")
    assert "--source kineto --force" in target["message"]
    unforced = host.profctl("start", "--pid", str(trainer), "--source", "kineto", "--duration", "400ms", "--json")
    (target,) = unforced.json["targets"]
    assert (unforced.code, target["state"], target["reason"]) == (1, "refused", "not_honoured")
    assert "can kill the process" in target["message"]


@needs_torch
def test_iterations_and_options_that_are_not_honoured(host, trainer):
    done = host.profctl("start", "--pid", str(trainer), *KINETO, "-n", "3", "--shapes", "--memory", "--json")
    assert done.code in (0, 6), done.err + done.out
    (target,) = done.json["targets"]
    assert any("memory" in text for text in target["not_honoured"])
    steps = host.profctl("show", target["trace"], "--json").json["steps"]
    assert steps["n"] in (2, 3)  # whether the first one is whole depends on what else the window saw
    strict = host.profctl("start", "--pid", str(trainer), *KINETO, "-d", "200ms", "--memory", "--strict", "--json")
    assert (strict.code, strict.json["targets"][0]["state"]) == (1, "refused")
    assert strict.json["targets"][0]["reason"] == "not_honoured"


def test_options_that_samples_have_no_place_for_are_named_and_refused_with_strict(host, program):
    asked = ("start", "--pid", str(program), "--source", "pyspy", "--c-calls", "--torch", "observer", "-d", SAMPLED)
    done = host.profctl(*asked, "--json")
    assert done.code == 0, done.err
    (target,) = done.json["targets"]
    assert target["state"] == "stored"
    assert [text.partition(":")[0] for text in target["not_honoured"]] == ["c_calls", "torch"]
    strict = host.profctl(*asked, "--strict", "--json")
    (target,) = strict.json["targets"]
    assert (strict.code, target["state"], target["reason"]) == (1, "refused", "not_honoured")
    assert "c_calls: " in target["message"]
    assert "torch: " in target["message"]


def test_a_dry_run_touches_nothing(host, program):
    before = len(host.profctl("captures", "--json").json)
    done = host.profctl("start", "--pid", str(program), "--duration", "5s", "--dry-run", "--json")
    assert done.code == 0, done.err
    (estimate,) = done.json
    assert estimate["source"] == "pyspy"
    assert estimate["permission"]
    assert len(host.profctl("captures", "--json").json) == before
    assert "No process was touched" in host.profctl("start", "--pid", str(program), "-d", "1s", "--dry-run").out


def test_no_such_process_is_an_error_and_no_empty_success(host):
    done = host.profctl("start", "--pid", "999999999", "--duration", "1s", "--json")
    assert (done.code, done.out) == (3, "")
    assert json.loads(done.err)["kind"] == "not_found"


def test_a_source_that_does_not_exist(host, program):
    done = host.profctl("start", "--pid", str(program), "-d", "1s", "--source", "nonsense")
    assert done.code != 0
    assert "nonsense" in done.err + done.out


def test_detach_wait_and_busy(host, program):
    first = host.profctl("start", "--pid", str(program), "--duration", "10m", "--detach", "--json")
    assert first.code == 0, first.err
    second = host.profctl("start", "--pid", str(program), "--duration", "1s", "--json")
    assert second.code == 5, second.out
    assert first.json["capture"] in second.json["targets"][0]["message"]
    until(lambda: records(host), "the capture records")
    assert host.profctl("stop", first.json["capture"]).code == 0
    waited = host.profctl("wait", first.json["capture"][:10], "--json")
    assert (waited.code, waited.json["state"]) == (0, "stored")
    known = [capture["capture"] for capture in host.profctl("captures", "--json").json]
    assert {first.json["capture"], second.json["capture"]} <= set(known)


def test_the_same_request_id_never_starts_a_second_capture(host, program):
    arguments = ("start", "--pid", str(program), "-d", "200ms", "--request-id", "once", "--json")
    one, two = host.profctl(*arguments), host.profctl(*arguments)
    assert one.json["capture"] == two.json["capture"]


@pytest.mark.parametrize("inherited", [signal.default_int_handler, signal.SIG_IGN], ids=["default", "ignored"])
def test_control_c_ends_an_open_ended_capture_and_stores_it(host, program, inherited):
    before = signal.signal(signal.SIGINT, inherited)  # a shell's `&` in a script has it ignored
    try:
        client = host.begin("start", "--pid", str(program), "--json")
    finally:
        signal.signal(signal.SIGINT, before)

    until(lambda: records(host), "the capture records")
    client.send_signal(signal.SIGINT)
    out, err = client.communicate(timeout=120)
    assert client.returncode == 0, err
    assert json.loads(out)["state"] == "stored"


def test_stop_keeps_what_was_recorded(host, program):
    started = host.profctl("start", "--pid", str(program), "--duration", "10m", "--detach", "--json", "--force")
    assert started.code == 0, started.err

    until(lambda: records(host), "the capture records")
    stopped = host.profctl("stop", started.json["capture"], "--json")
    assert stopped.json["state"] == "stored", stopped.out
    assert stopped.json["targets"][0]["events"] > 0


def test_where(host, program):
    def shown():
        done = host.profctl("where", "--pid", str(program))
        assert done.code == 0, done.err
        return "outer" in done.out

    def functions():
        (process,) = host.profctl("where", "--pid", str(program), "--json").json
        return [frame["function"] for thread in process["threads"] for frame in thread["frames"]]

    # A process that is looked at is not stopped for it: now and then a stack is read while it changes.
    until(shown, "a whole stack is shown")
    until(lambda: "outer" in functions(), "a whole stack is in the JSON")


@needs_ptrace
def test_where_says_of_a_stopped_process_that_it_is(host):
    with running(JOINING) as job:
        os.kill(job.pid, signal.SIGSTOP)
        until(lambda: Path(f"/proc/{job.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", "it is stopped")
        asked = "where", "--pid", str(job.pid)
        head = f"pid {job.pid}: a signal has stopped it; kill -CONT {job.pid} lets it go on\n\n"
        said = until(lambda: (done := host.profctl(*asked).out).startswith(head) and done, "it is said")
        until(lambda: all_stopped(host.profctl(*asked, "--json").json), "the JSON has it")
    assert f"pid {job.pid} holder (stopped by a signal)\n" in said


def all_stopped(processes):
    """A host that is busy may read none of its threads the first time."""
    return {thread["stopped"] for process in processes for thread in process["threads"]} == {True}


@needs_ptrace
@pytest.mark.parametrize("native", [(), ("--native",)])
def test_where_shows_equal_ranks_as_one_group(host, native):
    with running(JOINING, env={"RANK": "0"}) as first, running(JOINING, env={"RANK": "1"}) as second:
        pids = "--pid", str(first.pid), "--pid", str(second.pid)

        group = (
            "2 threads of 2 processes:\n"
            f"rank 0 pid {first.pid} MainThread (waiting for the end of holder)\n"
            f"rank 1 pid {second.pid} MainThread (waiting for the end of holder)\n    "
        )

        def shown() -> bool:
            done = host.profctl("where", *pids, *native)
            assert done.code == 0, done.err
            assert "0x" not in done.out
            return group in done.out

        until(shown, "both main threads wait with equal stacks")  # they are ready just before that
        (zero, _one) = host.profctl("where", *pids, "--json").json
    main, *others = zero["threads"]
    assert (zero["rank"], main["incomplete"]) == (0, False)
    assert main["joins"] in {thread["thread"] for thread in others if thread["name"] == "holder"}


def test_the_operator_can_refuse_captures(host, program):
    assert host.profctl("disable", "--why", "maintenance until noon").code == 0
    try:
        refused = host.profctl("start", "--pid", str(program), "-d", "1s")
        assert refused.code == 1
        assert "maintenance until noon" in refused.err + refused.out
    finally:
        assert host.profctl("enable").code == 0
    assert host.profctl("start", "--pid", str(program), "-d", SAMPLED).code == 0


def test_doctor(host):
    done = host.profctl("doctor", "--json")
    assert {source["name"] for source in done.json["sources"]} >= {"kineto", "pyspy"}
    assert all(check["verdict"] in ("ok", "warning", "problem") for check in done.json["checks"])
    assert "store" in host.profctl("doctor").out


def test_show_of_a_capture_that_has_no_trace(host, program):
    capture = host.profctl("start", "--pid", str(program), "-d", "1s", "--source", "kineto", "--json")
    assert capture.code != 0
    shown = host.profctl("show", capture.json["capture"])
    assert "refused" in shown.out
    assert "KINETO_USE_DAEMON" in shown.out or "kineto" in shown.out


def test_sources_of_the_program(host, program):
    assert until(lambda: sources_of(host, program), "it is listed") == ["pyspy"]


@needs_ptrace
def test_a_capture_of_two_ranks_is_asked_as_one(host, tmp_path):
    with running(SPIN, env={"RANK": "0"}) as first, running(SPIN, env={"RANK": "2"}) as third:
        pids = "--pid", str(first.pid), "--pid", str(third.pid)
        started = host.profctl("start", *pids, "--duration", SAMPLED, "--json")
    assert started.code == 0, started.err
    capture, events = started.json["capture"], sum(target["events"] for target in started.json["targets"])
    done = host.profctl("top", capture)
    assert done.code == 0, done.err
    assert f"{capture}: 2 traces, ranks 0, 2 on 1 host; no trace of rank 1" in done.err
    rows = host.profctl("top", capture[:8], "--by", "rank", "--raw", "--json").json["rows"]
    assert {row["rank"] for row in rows if "inner" in row["name"]} == {0, 2}
    counted = host.profctl("sql", capture, "select rank, count(*) from events group by 1 order by 1", "--json").json
    assert [rank for rank, _ in counted["rows"]] == [0, 2]
    assert sum(count for _, count in counted["rows"]) == events
    # AND what is exported answers as the daemon
    out = str(tmp_path / "out")
    assert host.profctl("export", capture, "-f", "parquet", "--to", out).code == 0
    again = host.profctl("--store", out, "top", capture, "--by", "rank", "--raw", "--json").json["rows"]
    assert again == rows
    assert len(host.profctl("--store", out, "files", capture, "--check").out.splitlines()) == 2
    refused = host.profctl("tree", capture)
    assert (refused.code, "cannot be asked of a capture" in refused.err) == (2, True)

"""What counts as harm, and that results add up."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kindness import jobs, place, report, suites
from kindness.ledger import Job, Kills, Ledger, Tally
from kindness.trial import alone

OK = "print('ok', 1)"


def judged(folder: Path, code: str, quiet: str = r"(?!)") -> tuple[str, list[Path]]:
    """The harm of a Python that runs this code, and the logs that were kept."""
    job = jobs.start("p", [sys.executable, "-c", code], folder, os.environ, seconds=60, quiet=quiet)
    alone(job)
    return job.harm(), sorted(folder.iterdir())


def test_a_job_that_ends_well_leaves_nothing(tmp_path: Path) -> None:
    assert judged(tmp_path, OK) == ("", [])


@pytest.mark.parametrize(
    ("code", "harm"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import faulthandler as f; f.enable(); f._sigsegv()", "SIGSEGV"),
        ("raise SystemExit('skip: needs root')", "exit code 1: skip: needs root"),
        (f"{OK}; raise SystemExit(3)", "exit code 3"),
        (f"{OK}; 1 / 0", "exit code 1: ZeroDivisionError: division by zero"),
        ("pass", "no ok: ''"),
        ("print('okay')", "no ok: 'okay'"),
        (f"{OK}; import warnings; warnings.warn('threads')", "stderr: <string>:1: UserWarning: threads"),
    ],
)
def test_harm_is_named_and_its_log_kept(tmp_path: Path, code: str, harm: str) -> None:
    found, logs = judged(tmp_path, code)
    assert found == harm
    assert len(logs) == 2


def test_what_a_program_always_says_is_no_harm(tmp_path: Path) -> None:
    code = f"import sys; sys.stderr.write('INFO: as always\\n'); {OK}"
    assert judged(tmp_path, code, quiet="^INFO") == ("", [])
    assert judged(tmp_path, code)[0] == "stderr: INFO: as always"


def test_a_job_that_is_stalled_is_ended_and_harmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "STALLED_SECONDS", 0.0)
    job = jobs.start("p", ["sleep", "1000"], tmp_path, os.environ, seconds=0.0)
    alone(job)
    assert job.harm() == "stalled"


def test_results_add_up_over_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run in range(2):
        ledger = Ledger(tmp_path, tmp_path / "kept.jsonl")
        tally = Tally(ledger, "storm")
        tally.count("mods", "stored", recorded=True)
        tally.count("mods", "busy capture_running", recorded=False)
        tally.flush()
        ledger.add(Job("storm", "mods", "SIGSEGV" if run else "", "the.log"))
        ledger.add(Kills("storm", 3))
    assert report.show(ledger, place.digest()) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["storm", "all", "4", "2", "2", "1", "6"] in lines
    assert ["mods", "4", "2", "2", "1", "0"] in lines
    assert ["HARMED", "storm/mods:", "SIGSEGV"] in lines
    assert report.show(ledger, "other sources") == 0


def test_counts_outlive_the_machine_that_they_were_had_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept.jsonl"
    for machine in ("first", "second"):
        ledger = Ledger(tmp_path / machine, kept)
        for _ in range(2):
            tally = Tally(ledger, "storm")
            tally.count("mods", "stored", recorded=True)
            tally.count("mods", "busy capture_running", recorded=False)
            tally.flush()
            ledger.add(Job("storm", "mods"))
            ledger.add(Kills("storm", 3))
        ledger.keep(place.digest())
    ledger.add(Job("storm", "mods"))
    assert report.show(ledger, place.digest()) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["storm", "all", "8", "4", "5", "0", "12"] in lines
    assert ["mods", "8", "4", "5", "0", "0"] in lines
    assert len(kept.read_text().splitlines()) == 2  # mods, and what belongs to no program


def test_harm_is_not_moved_out_of_sight(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, tmp_path / "kept.jsonl")
    ledger.add(Job("storm", "mods", "SIGSEGV", "the.log"))
    with pytest.raises(ValueError, match="storm/mods was harmed: SIGSEGV"):
        ledger.keep(place.digest())
    assert not (tmp_path / "kept.jsonl").exists()


JUNIT = """<testsuites><testsuite><testcase name="a"/><testcase name="b"><skipped/></testcase>
<testcase name="c"><failure/></testcase><testcase name="c"/></testsuite></testsuites>"""


def test_two_runs_of_a_suite_are_compared_test_by_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.xml"
    path.write_text(JUNIT)
    plain = suites.read(path)
    assert plain == {"a": "passed", "b": "skipped", "c": "failed"}
    assert suites.read(tmp_path / "nothing") == {}
    differences = suites.differing(plain, {"a": "failed", "b": "skipped", "c": "failed"})
    assert differences == {"a": "passed, then failed"}
    assert suites.unexplained("3.12", differences) == differences
    monkeypatch.setattr(suites, "INHERENT", {"3.12:a": "a reason"})
    assert suites.unexplained("3.12", differences) == {}
    assert suites.unexplained("3.13", differences) == differences

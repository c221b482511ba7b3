"""The scripts of bench/gpu against stand-ins of CUDA and CUPTI, as far as that goes: no result of it is kept."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu import capturing, coexist, detach, end_to_end, planted, queue, residue, truth, whole
from bench.gpu.__main__ import SCRIPTS
from bench.gpu.machine import no_gpu
from bench.gpu.results import Check, Result, read
from bench.measure import ROOT
from tests.integration.cuda.conftest import SUPPORT
from tests.support.long import long

pytestmark = pytest.mark.slow


@pytest.fixture
def fakes(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are started from here on have a GPU of ours."""
    compiler = shutil.which("cc")
    assert compiler is not None  # `built` has used it
    cuda = tmp_path / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-pthread", "-o", cuda, SUPPORT / "fake_cuda.c", "-ldl"], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("PROFD_CUPTI_LIBRARY", str(built / "cupti.so"))


def test_the_program_of_known_truth(fakes: None) -> None:
    result = truth.run()
    assert [check for check in result.checks if check.passed is False] == []
    assert sum(check.name.startswith("ours: ") for check in result.checks) >= 10
    assert result.passed


def test_the_whole_way(fakes: None) -> None:
    """Through kineto it needs a PyTorch that can use a GPU."""
    result = end_to_end.run("truth", ("sdk", "cuda"))
    assert [check for check in result.checks if check.passed is not True] == []
    assert set(result.data) == {"sdk", "cuda"}


# --- rehearsals: everything that a machine with a GPU would run, on one without ---


def rehearsed(script: str, folder: Path) -> Result:
    """Its result file."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    command = [sys.executable, "-m", "bench.gpu", script, "--rehearse", "--out", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    [path] = folder.glob("*.json")
    assert path.name.startswith(f"{script}-stand-in-"), done.stderr
    result = read(path)
    assert result.stand_in
    assert done.returncode == (0 if result.passed else 1), done.stderr
    assert f"| stand-in | {result.machine['date']} |" in done.stdout  # the row is none of a GPU
    return result


def failed(result: Result) -> list[Check]:
    return [check for check in result.checks if check.passed is False]


def test_rehearsal_of_the_program_of_known_truth(built: Path, tmp_path: Path) -> None:
    result = rehearsed("truth", tmp_path)
    assert [check for check in result.checks if check.passed is not True] == []
    for who in ("ours", "cupti-python", "ours through cupti-python"):
        assert sum(check.name.startswith(f"{who}: ") for check in result.checks) >= 10


def test_rehearsal_of_the_corpus(built: Path, tmp_path: Path) -> None:
    before = sorted((ROOT / "tests" / "data" / "gpu").glob("*"))
    result = rehearsed("corpus", tmp_path)
    assert failed(result) == []
    assert set(result.data) == {"truth", "torch"}
    assert sorted((ROOT / "tests" / "data" / "gpu").glob("*")) == before  # nothing of stand-ins is kept


@long
def test_rehearsal_beside_others(built: Path, tmp_path: Path) -> None:
    result = rehearsed("coexist", tmp_path)
    assert set(result.data) == set(coexist.CASES)
    assert failed(result) == []
    assert result.data["second_subscriber"]["error"] == 39


@long
def test_rehearsal_of_the_whole_way(built: Path, tmp_path: Path) -> None:
    """libkineto has no kernels without a GPU, and says so."""
    result = rehearsed("end_to_end", tmp_path)
    assert set(result.data) == {"kineto", "sdk", "cuda"}
    assert {check.name for check in failed(result)} <= {"kineto: stored", "kineto: kernels", "kineto: linked"}
    assert "kineto: kernels" in {check.name for check in failed(result)}


@long
def test_rehearsal_of_overhead(built: Path, tmp_path: Path) -> None:
    """Its ratios say nothing; that every mode has one does. One loop: each takes a dozen processes."""
    result = rehearsed("overhead", tmp_path)
    assert [check for check in result.checks if check.name.endswith(" ran")] == []
    assert set(result.data) == {"graph"}
    for loop, data in result.data.items():
        modes = {"off", "armed", "profiler", "after", "idle", "kineto", "sdk"}
        assert set(data["ratios"]) == modes
        assert all(ratio["low"] <= ratio["value"] <= ratio["high"] for ratio in data["ratios"].values())
        assert {check.name.split(": ")[1].split(",")[0] for check in result.checks if check.name.startswith(loop)} >= {
            *("noise", "idle", "after")
        }


@long
def test_rehearsal_of_what_stays_behind(built: Path, tmp_path: Path) -> None:
    """Every part and every order of ends was measured."""
    result = rehearsed("residue", tmp_path)
    assert [check for check in result.checks if check.passed is not True] == []
    assert list(result.data) == list(residue.PARTS)
    for part in ("ours", "all", "kernels", "calls", "finalize"):
        [told] = result.data[part]["rounds"]
        assert not told["about"].startswith("0 bytes")


@long
def test_rehearsal_of_leaving(built: Path, tmp_path: Path) -> None:
    result = rehearsed("detach", tmp_path)
    assert [check for check in result.checks if check.passed is not True] == []
    assert set(result.data) == set(detach.CASES)


def test_a_death_of_what_was_promised_to_live() -> None:
    """And one of what nobody has promised."""
    died = {"ended": "signal 6", "stages": [{"stage": "recorded", "after": "gone", "kernels": 3}], "said": ""}
    assert detach.judge("stress", died).passed is False
    assert detach.judge("graph_before", died).passed is None
    wrong = {"ended": "exit 0", "stages": [{"stage": "replayed after", "right": False}, {"stage": "done"}], "said": ""}
    assert detach.judge("no_graphs", wrong).passed is False


@long
def test_rehearsal_of_graphs_as_one(built: Path, tmp_path: Path) -> None:
    result = rehearsed("whole", tmp_path)
    assert [check for check in result.checks if check.passed is not True] == []
    assert set(result.data) == set(whole.CASES)


def test_a_death_of_a_job_whose_graphs_are_recorded_as_one() -> None:
    """It is a result; one of a job whose nodes are recorded is a failure."""
    died = {"ended": "signal 11", "stages": [{"stage": "records"}], "said": ""}
    assert whole.judge("ours_whole", died).passed is None
    assert whole.judge("ours_nodes", died).passed is False


@long
def test_rehearsal_of_a_long_queue(built: Path, tmp_path: Path) -> None:
    """The stand-ins have no queue: that every case was tried is all that it says."""
    result = rehearsed("queue", tmp_path)
    assert set(result.data) == set(queue.CASES)
    assert failed(result) == []


@long
def test_rehearsal_beside_captures_of_graphs(built: Path, tmp_path: Path) -> None:
    """The jobs capture nothing without a GPU: that each way was tried is all that it says."""
    result = rehearsed("capturing", tmp_path)
    assert set(result.data) == set(capturing.WAYS)
    assert failed(result) == []


def test_a_job_that_stood_behind_a_prepared_cupti() -> None:
    """It is a failure; behind one that is not prepared, a fact. A capture that breaks is a failure beside us alone."""
    stood = {"ended": "exit 0", "calls": [{"call": "start", "s": 1.0, "queue_s": 1.0, "other_s": 1.0}], "said": ""}
    assert queue.judge("ours_injected", stood).passed is False
    assert queue.judge("ours", stood).passed is True
    broke = {"ended": "exit 0", "calls": [{"call": "the capture's end", "error": "901"}], "said": ""}
    assert queue.judge("capturing_end", broke).passed is False
    assert queue.judge("capturing_wait", broke).passed is None


@long
def test_rehearsal_of_planted_troubles(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its jobs run on the CPU and without an observer: what is found says nothing; that all were asked does."""
    monkeypatch.setenv("PROFD_BENCH_EXPORTS", str(tmp_path / "exports"))
    result = rehearsed("planted", tmp_path)
    assert set(result.data) == set(planted.EXPECTED)
    for case, found in result.data.items():
        assert all(isinstance(answer["answer"], dict) for answer in found["answers"].values()), case
        assert (tmp_path / "exports" / f"{case}.bundle").stat().st_size == found["exported_bytes"]


@pytest.mark.parametrize("out", [[], ["--out", "bench/gpu/results"]])
def test_rehearsals_are_not_kept_with_results(out: list[str]) -> None:
    command = [sys.executable, "-m", "bench.gpu", "truth", "--rehearse", *out]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--rehearse needs --out FOLDER" in done.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_machine_without_a_gpu(script: str, tmp_path: Path) -> None:
    if not no_gpu():
        pytest.skip("this machine has a GPU: run `python -m bench.gpu`")
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu", script, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (2, "")
    [line] = done.stdout.splitlines()
    assert line.startswith(f"{script}: This machine has no NVIDIA driver")
    assert line.endswith("nothing was measured.")
    assert not list(tmp_path.iterdir())

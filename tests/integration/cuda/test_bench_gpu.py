"""The scripts of bench/gpu against stand-ins of CUDA and CUPTI, as far as that goes: no result of it is kept."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu import end_to_end, truth
from bench.gpu.machine import no_gpu
from bench.measure import ROOT
from tests.integration.cuda.conftest import SUPPORT

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


@pytest.mark.parametrize("script", ["truth", "corpus", "overhead", "coexist", "end_to_end"])
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

"""`tools/run_tests.py`: a test that passes only at the second run is named, and fails the run where that is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import run_tests

ROOT = Path(__file__).resolve().parents[3]
FLAKY = """
from pathlib import Path

def test_flaky():
    begun = Path(__file__).with_name("begun")
    again = begun.exists()
    begun.touch()
    assert again

def test_sound():
    pass
"""
QUARANTINED = """
[[test]]
name = "{}"
reason = "it wants a file that it makes itself"
since = 2026-11-26
"""
RUN = (
    "import sys; from pathlib import Path; from tools import run_tests; sys.exit(run_tests.main(Path(sys.argv.pop())))"
)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A project of two tests, one of which passes only at its second run."""
    (tmp_path / "tests").mkdir()
    (tmp_path / run_tests.QUARANTINE).write_text("# nothing\n")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / "tests" / "test_toy.py").write_text(FLAKY)
    return tmp_path


def run(suite: Path, processes: str = "-n0") -> tuple[int, str]:
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), run_tests.STRICT: "1"}
    command = [sys.executable, "-c", RUN, processes, str(suite)]
    done = subprocess.run(command, env=environ, cwd=suite, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_byte_code_is_kept_where_an_image_turns_it_off(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    code = suite / run_tests.CODE[0] / "one.py"
    code.parent.mkdir(parents=True)
    code.touch()
    (suite / "tests" / "test_toy.py").write_text(
        "import sys\n\ndef test_it():\n    assert not sys.dont_write_bytecode\n"
    )
    monkeypatch.setattr(sys, "argv", ["run_tests", "-n0"])
    assert run_tests.main(suite) == 0
    assert list(code.parent.glob("__pycache__/one.*.pyc"))


@pytest.mark.slow
def test_what_is_left_on_the_machine_fails_the_run(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    etc = suite / "etc"
    monkeypatch.setattr(run_tests, "MACHINE", (etc,))
    monkeypatch.setattr(sys, "argv", ["run_tests", "-n0"])
    test = f"from pathlib import Path\n\ndef test_it():\n    Path({str(etc)!r}).mkdir(exist_ok=True)\n"
    (suite / "tests" / "test_toy.py").write_text(test)
    assert run_tests.main(suite) == run_tests.TESTS_FAILED
    assert run_tests.main(suite) == 0  # it was there before


@pytest.mark.slow
def test_one_of_a_group_is_run_again_by_its_own_name(suite: Path) -> None:
    grouped = FLAKY.replace("def test_flaky", '@pytest.mark.xdist_group("toy")\ndef test_flaky')
    (suite / "tests" / "test_toy.py").write_text(f"import pytest\n{grouped}")
    code, said = run(suite, "-n2")
    assert code == run_tests.TESTS_FAILED, said
    assert "1 passed" in said.partition("once more")[2]
    assert "\n  tests/test_toy.py::test_flaky\n" in said


@pytest.mark.slow
def test_a_flake_is_named_and_fails_a_strict_run(suite: Path) -> None:
    code, said = run(suite)
    assert code == run_tests.TESTS_FAILED, said
    assert "PASSED ONLY AT THE SECOND RUN: 1." in said
    assert "\n  tests/test_toy.py::test_flaky\n" in said


@pytest.mark.slow
def test_a_test_that_fails_twice_fails_the_run(suite: Path) -> None:
    (suite / run_tests.QUARANTINE).write_text(QUARANTINED.format("tests/test_toy.py::test_flaky"))
    (suite / "tests" / "test_toy.py").write_text("def test_flaky(): assert False\n")
    code, said = run(suite)
    assert code == run_tests.TESTS_FAILED
    assert "SECOND RUN" not in said


@pytest.mark.slow
def test_a_quarantined_name_that_no_test_has_is_an_error(suite: Path) -> None:
    (suite / run_tests.QUARANTINE).write_text(QUARANTINED.format("tests/test_toy.py::test_gone"))
    code, said = run(suite)
    assert code not in (0, run_tests.TESTS_FAILED)
    assert "names tests that do not exist" in said
    assert not (suite / "tests" / "begun").exists()


@pytest.mark.parametrize(
    ("flaky", "strict", "code"),
    [({"a", "b"}, True, 1), ({"a"}, True, 0), (set(), True, 0), ({"a", "b"}, False, 0)],
)
def test_quarantine_is_for_what_it_names(flaky: set[str], strict: bool, code: int) -> None:
    assert run_tests.verdict(flaky, {"a"}, strict=strict) == code


@pytest.mark.parametrize("lacks", ["name", "reason", "since"])
def test_an_entry_says_which_why_and_since_when(tmp_path: Path, lacks: str) -> None:
    lines = [line for line in QUARANTINED.format("a").splitlines() if not line.startswith(lacks)]
    (tmp_path / "quarantine.toml").write_text("\n".join(lines))
    with pytest.raises(KeyError, match=lacks):
        run_tests.names(tmp_path / "quarantine.toml")


def test_the_list_of_this_project_can_be_read() -> None:
    assert run_tests.names(ROOT / run_tests.QUARANTINE) is not None

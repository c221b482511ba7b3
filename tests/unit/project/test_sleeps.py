"""Tests wait for conditions (tests/support/waiting.py). Only programs under test, and what plays one, sleep."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
SLEEPERS = {
    "support/waiting.py": "the pause between two looks",
    "support/recording_job.py": "a program under test",
    "corpus/answers/explained_programs.py": "programs under test",
    "corpus/answers/gloo_jobs.py": "programs under test",
    "corpus/answers/hanging_jobs.py": "programs under test",
    "corpus/answers/late_programs.py": "programs under test",
    "corpus/answers/attached/leak.py": "a program under test",
    "corpus/answers/attached/published.py": "a program under test",
    "support/kineto_client.py": "plays libkineto's thread",
    "support/pm_collector.py": "plays a counter that hangs",
}


def sleeps(source: str) -> Iterator[int]:
    """The lines that sleep for more than a turn of other tasks or threads (`sleep(0)`)."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "sleep":
            yield from [] if [ast.unparse(argument) for argument in node.args] == ["0"] else [node.lineno]


def test_no_test_sleeps() -> None:
    sources = {path.relative_to(TESTS).as_posix(): path.read_text() for path in TESTS.rglob("*.py")}
    found = {name: list(sleeps(source)) for name, source in sources.items() if "sleep(" in source}
    assert {name: lines for name, lines in found.items() if lines and name not in SLEEPERS} == {}
    assert [name for name in SLEEPERS if not found[name]] == []


@pytest.mark.parametrize("source", ["time.sleep(1)", "await asyncio.sleep(0.01)", "sleep(pause)", "sleep(seconds=1)"])
def test_no_way_to_sleep_is_overlooked(source: str) -> None:
    assert list(sleeps(f"async def test():\n    {source}")) == [2]


def test_a_turn_of_others_and_a_program_in_a_string_are_no_sleep() -> None:
    assert list(sleeps("time.sleep(0)\nPROGRAM = 'time.sleep(600)'")) == []

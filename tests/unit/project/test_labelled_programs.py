"""`tests/corpus/answers/labels.toml` names what is there: files, findings, tests, simulations."""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from profd.answers import detectors

from tests.corpus import answers

TESTS = Path(__file__).resolve().parents[2]
LABELS = answers.every()
FINDINGS = {import_module(f"{detectors.__name__}.{one.name}").ID for one in iter_modules(detectors.__path__)}


@pytest.mark.parametrize("label", LABELS, ids=lambda label: label.name)
def test_a_label_says_what_there_is(label: answers.Label) -> None:
    assert label.file.is_file()
    assert label.finding in ("", *FINDINGS)
    assert label.cause or not label.finding
    assert (TESTS / label.test).is_file()
    for each in label.says:
        re.compile(each)


def test_each_program_has_one_label() -> None:
    assert [name for name, times in Counter(label.name for label in LABELS).items() if times > 1] == []
    programs = {path for path in answers.FOLDER.rglob("*.py") if path.name != "__init__.py"}
    assert {label.file for label in LABELS} == programs


def test_there_are_clean_ones_as_well() -> None:
    """An answer that always names something is right about each trouble."""
    assert sum(not label.cause for label in LABELS) >= 20


@pytest.mark.parametrize("name", answers.simulations())
def test_a_simulation_has_seeds(name: str) -> None:
    said = answers.simulations()[name]
    assert (TESTS / said["played"]).is_file()
    assert said["planted"]
    assert 0 < said["tests"] <= said.get("bench", said["tests"])

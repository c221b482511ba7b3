"""The capabilities of the daemon of a whole host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from profd.kernel.privileges import PRIVILEGES, how_to_grant, missing

ROOT = Path(__file__).parents[4]
HEADER = Path("/usr/include/linux/capability.h")
UNIT = (ROOT / "deploy" / "systemd" / "profd.service").read_text()


def test_they_are_those_of_the_unit() -> None:
    (granted,) = re.findall(r"^CapabilityBoundingSet=(.*)$", UNIT, re.MULTILINE)
    assert {privilege.name for privilege in PRIVILEGES} == set(granted.split())


def test_missing_ones_are_those_whose_bit_is_not_set() -> None:
    held = sum(1 << privilege.number for privilege in PRIVILEGES if privilege.name != "CAP_KILL")
    assert [privilege.name for privilege in missing(held)] == ["CAP_KILL"]
    assert missing(held | 1 << 5) == []
    assert [privilege.name for privilege in missing(1 << 5 | held & ~(1 << 39))] == ["CAP_BPF"]
    assert missing(1 << 5 | held & ~(1 << 39), started=True) == []  # given up by then


@pytest.mark.skipif(not HEADER.exists(), reason=f"no {HEADER} here (apt-get install linux-libc-dev)")
def test_numbers_are_those_of_the_kernel() -> None:
    header = HEADER.read_text()
    numbers = dict(re.findall(r"^#define (CAP_\w+)\s+(\d+)$", header, re.MULTILINE))
    assert {privilege.name: str(privilege.number) for privilege in PRIVILEGES}.items() <= numbers.items()


def test_the_fix_names_them_for_each_way_to_run_it() -> None:
    held = sum(1 << privilege.number for privilege in PRIVILEGES if privilege.name != "CAP_SYS_PTRACE")
    said = how_to_grant(missing(held))
    assert "CapabilityBoundingSet=CAP_SYS_PTRACE" in said
    assert "--cap-add=SYS_PTRACE" in said
    assert "add: [SYS_PTRACE]" in said

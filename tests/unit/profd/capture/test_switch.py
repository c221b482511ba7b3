"""The switch that an operator can touch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from profd.capture.switch import Switch
from profd.errors import Unavailable

from tests.support.people import being


def test_on_off_on(tmp_path: Path) -> None:
    switch = Switch(tmp_path / "made" / "disabled")
    switch.check()
    switch.set(False, "disk is being replaced")
    with pytest.raises(Unavailable, match="disk is being replaced"):
        Switch(switch.file).check()
    switch.set(True)
    switch.set(True)
    switch.check()


def test_a_link_beside_it_leads_nowhere(tmp_path: Path) -> None:
    """The file is where an operator wants it, which others may write to."""
    switch, other = Switch(tmp_path / "disabled"), tmp_path / "other"
    other.write_text("theirs")
    for name in ("disabled.new", "disabled"):
        (tmp_path / name).symlink_to(other)
    switch.set(False, "the disk is full")
    assert other.read_text() == "theirs"
    assert switch.why_disabled() == "the disk is full"


def test_hostile_text_is_made_printable(tmp_path: Path) -> None:
    switch = Switch(tmp_path / "disabled")
    switch.file.write_bytes(b"\x1b[2Jwhy\n\xff" + b"x" * 10_000)
    why = switch.why_disabled()
    assert why is not None
    assert why.isprintable()
    assert len(why) < 1100


@pytest.mark.parametrize("kind", ["fifo", "directory", "symlink", "empty"])
def test_whatever_lies_there_switches_off(tmp_path: Path, kind: str) -> None:
    switch = Switch(tmp_path / "disabled")
    if kind == "fifo":
        os.mkfifo(switch.file)
    elif kind == "directory":
        switch.file.mkdir()
    elif kind == "symlink":
        switch.file.symlink_to("/etc/passwd")
    else:
        switch.file.touch()
    assert switch.why_disabled() == f"{switch.file} exists"


def test_one_that_we_may_not_look_at_switches_off(tmp_path: Path) -> None:
    switch = Switch(tmp_path / "closed" / "disabled")
    switch.file.parent.mkdir(mode=0)
    with being(65534 if os.geteuid() == 0 else None):
        assert switch.why_disabled() == f"{switch.file} cannot be looked at (Permission denied)"

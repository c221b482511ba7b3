"""What `profctl ps` says beside its table."""

from __future__ import annotations

import pytest
from profclient.cli.commands.ps import _remarks
from profproto.v1 import capture_pb2


def _target(
    pid: int, sources: list[str], reason: str = "", fix: str = "", *, attached: bool = False
) -> capture_pb2.Target:
    return capture_pb2.Target(pid=pid, sources=sources, reason=reason, fix=fix, attached=attached)


def test_a_reason_is_said_once_for_all_that_share_it(capsys: pytest.CaptureFixture[str]) -> None:
    _remarks([_target(pid, ["pyspy"], "no daemon mode", "start it again") for pid in (1, 2)])
    assert capsys.readouterr().err.strip() == "1, 2: no daemon mode\n  → start it again"


def test_a_reason_fits_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    _remarks([_target(1, ["pyspy"], "sdk: it is not attached, and much more is to be said", "call attach() " * 5)])
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 40
    assert [line[:4] for line in lines[-2:]] == ["  → ", "    "]


def test_processes_that_are_served_best_need_no_remark(capsys: pytest.CaptureFixture[str]) -> None:
    inside = _target(1, ["of ours", "pyspy"], "no daemon mode", "start it again", attached=True)
    _remarks([inside, _target(2, ["pyspy"], "not PyTorch")])
    assert capsys.readouterr().err == ""


def test_what_cannot_be_profiled_at_all_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    _remarks([_target(1, [], "it belongs to somebody else")])
    assert "somebody else" in capsys.readouterr().err

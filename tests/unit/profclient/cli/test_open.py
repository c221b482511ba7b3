"""What `profctl open` says while it writes a large trace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from profclient.cli.commands import open as command


def test_how_much_was_written_is_said_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)

    def pieces() -> Iterator[bytes]:
        nonlocal now
        for _ in range(5):
            now += command.TOLD_SECONDS / 2
            yield bytes(1 << 20)

    assert sum(map(len, command.told(pieces()))) == 5 << 20
    assert capsys.readouterr().err.splitlines() == ["2.1 MB …", "4.2 MB …"]

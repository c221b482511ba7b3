"""Files of sockets that are looked at, and made anew by what may fail in any way."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from profd.errors import BadInput
from profd.host import socket_files
from profd.host.socket_files import SocketFiles

from tests.support.waiting import eventually


@pytest.mark.parametrize("error", [OSError("no space"), BadInput("it is taken"), RuntimeError("a fault")])
async def test_one_that_cannot_be_made_keeps_nobody_from_looking_at_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    monkeypatch.setattr(socket_files, "LOOK_SECONDS", 0.001)
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    tried = []

    async def fail() -> None:
        tried.append(1)
        if len(tried) < 3:
            raise error
        broken.touch()

    async def make() -> None:
        whole.touch()

    broken.touch()
    whole.touch()
    files = SocketFiles()
    files.add("broken", broken, fail)
    files.add("whole", whole, make)
    files.open()
    try:
        with caplog.at_level(logging.ERROR, "profd"):
            broken.unlink()
            whole.unlink()
            await eventually(lambda: files.remade == {"broken": 1, "whole": 1})
    finally:
        await files.close()
    # Said once, and what nobody foresaw with where it came from.
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.why == str(error)  # type: ignore[attr-defined]  # of `extra`
    assert bool(record.exc_info) == isinstance(error, RuntimeError)


async def test_one_that_says_itself_whether_it_is_gone_is_not_looked_for(tmp_path: Path) -> None:
    gone = [True, False, True]

    async def make() -> None:
        pass

    files = SocketFiles()
    files.add("there", tmp_path / "nothing", make, gone.pop)
    for made in (1, 1, 2):
        await files.look()
        assert files.remade["there"] == made

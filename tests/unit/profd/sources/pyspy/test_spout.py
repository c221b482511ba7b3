"""What goes through the pipe is in the file, up to its limit, whoever holds the other end."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from profd.sources.pyspy import spout as module
from profd.sources.pyspy.spout import Spout

MUCH = os.urandom(300_000)  # more than a pipe holds


async def test_all_of_it_is_there_although_somebody_else_keeps_the_pipe(tmp_path: Path) -> None:
    async with Spout(tmp_path / "file", 1 << 20) as spout:
        kept = os.open(f"/proc/self/fd/{spout.writing}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)  # as py-spy opens it
        spout.start()
        with open(kept, "wb", closefd=False) as sampler:
            sampler.write(MUCH)
        await spout.finish()
        assert (tmp_path / "file").read_bytes() == MUCH
        assert spout.failure == ""
    os.close(kept)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


async def test_no_more_than_allowed(tmp_path: Path) -> None:
    async with Spout(tmp_path / "file", 100_000) as spout:
        kept = os.dup(spout.writing)
        spout.start()
        try:
            with open(kept, "wb") as sampler:
                sampler.write(MUCH)
        except BrokenPipeError:
            pass
        await spout.finish()
    assert (tmp_path / "file").read_bytes() == MUCH[:100_000]


async def test_nothing_makes_no_file(tmp_path: Path) -> None:
    async with Spout(tmp_path / "file", 1000) as spout:
        spout.start()
        await spout.finish()
    async with Spout(tmp_path / "file", 1000):  # given up before anything was started
        pass
    assert not list(tmp_path.iterdir())


async def test_a_file_that_is_there_is_left_alone_and_named(tmp_path: Path) -> None:
    (tmp_path / "file").symlink_to(tmp_path / "elsewhere")
    async with Spout(tmp_path / "file", 1000) as spout:
        kept = os.dup(spout.writing)
        spout.start()
        os.write(kept, b"something")
        os.close(kept)
        await spout.finish()
        assert str(tmp_path / "file") in spout.failure
    assert not (tmp_path / "elsewhere").exists()


async def test_a_pipe_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does whose writer holds it and waits for memory that does not come."""
    answer, waits = threading.Event(), module._waiting
    monkeypatch.setattr(module, "_waiting", lambda pipe: answer.wait() and waits(pipe))
    monkeypatch.setattr(module, "POUR_SECONDS", 0.0)
    async with Spout(tmp_path / "file", 1000) as spout:
        kept = os.dup(spout.writing)
        spout.start()
        os.write(kept, b"something")
        assert not await spout.finish()
        assert "could not be read" in spout.failure
    answer.set()
    spout._pouring.join()
    with pytest.raises(BrokenPipeError):  # it lets go of the pipe when it can
        os.write(kept, b"more")
    os.close(kept)

"""What goes through the pipe is in the file, up to its limit, whoever holds the other end."""

from __future__ import annotations

import os
from pathlib import Path

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

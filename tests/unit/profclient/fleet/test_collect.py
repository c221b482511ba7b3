"""Traces of hosts in a folder of the user's: whole, or missing with a reason; nothing elsewhere."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from profclient.errors import NotFoundError
from profclient.fleet import way as ways
from profclient.fleet.collect import MARKER, NO_RANK, FolderError, collect
from profclient.fleet.host import Disconnected
from profclient.fleet.way import Way
from profproto.v1 import capture_pb2 as pb

ID = "f0123456789ab"


class PlayedHost:
    """Has these targets; an answer may break off."""

    def __init__(self, name: str, *targets: pb.TargetStatus, fails: Exception | None = None) -> None:
        self.name, self._targets, self._fails = name, targets, fails

    async def reach(self) -> None: ...

    async def leave(self) -> None: ...

    async def call(self, method: str, request: Any) -> pb.Capture:
        if not self._targets:
            raise NotFoundError("you have no capture")
        return pb.Capture(id="c1", targets=self._targets)

    async def ask(self, request: Any) -> AsyncIterator[bytes]:
        yield b"first "
        if self._fails is not None:
            raise self._fails
        yield b"second"


def target(trace: str = "1abc", **more: Any) -> pb.TargetStatus:
    return pb.TargetStatus(pid=1, trace=trace, state=pb.STATE_STORED, **more)


async def collected(monkeypatch, to: Path, *hosts: PlayedHost) -> dict[str, Any]:
    @asynccontextmanager
    async def reachable(way: Way) -> AsyncIterator[dict[str, PlayedHost]]:
        yield {host.name: host for host in hosts}

    monkeypatch.setattr(ways, "reachable", reachable)
    return await collect(Way(tuple(host.name for host in hosts), "x {host}"), ID, to, [("n9", "no route")])


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def test_the_layout_and_what_is_missing(monkeypatch, tmp_path):
    bad = pb.TargetStatus(pid=2, rank=3, state=pb.STATE_FAILED, message="it ended")
    written = await collected(
        monkeypatch, tmp_path, PlayedHost("n1", target(rank=0), bad), PlayedHost("n2", target("2def")), PlayedHost("n3")
    )
    assert files(tmp_path) == [
        f"capture={ID}/{MARKER}",
        f"capture={ID}/host=n1/rank=0/trace=1abc/events.parquet",
        f"capture={ID}/host=n2/rank={NO_RANK}/trace=2def/events.parquet",
    ]
    assert (tmp_path / f"capture={ID}" / written["traces"][0]["path"]).read_bytes() == b"first second"
    assert json.loads((tmp_path / f"capture={ID}" / MARKER).read_text()) == written
    assert [(one["host"], one["rank"], one["why"]) for one in written["missing"]] == [
        ("n1", 3, "it ended"),
        ("n3", None, "you have no capture"),
        ("n9", None, "no route"),
    ]


async def test_an_answer_that_breaks_off_leaves_no_file(monkeypatch, tmp_path):
    written = await collected(monkeypatch, tmp_path, PlayedHost("n1", target(rank=0), fails=Disconnected("gone")))
    assert files(tmp_path) == [f"capture={ID}/{MARKER}"]
    assert written["missing"][0] == {"host": "n1", "rank": 0, "why": "gone"}


@pytest.mark.parametrize("trace", ["../../../x", "a/b", ".", "x" * 65, "a\x00"])
async def test_a_host_that_names_a_path_writes_nothing(monkeypatch, tmp_path, trace):
    with pytest.raises(FolderError, match="n1 names a trace"):
        await collected(monkeypatch, tmp_path, PlayedHost("n1", target(trace, rank=0)))
    assert files(tmp_path) == []


async def test_a_marker_vouches_for_no_folder_that_is_being_written_again(monkeypatch, tmp_path):
    await collected(monkeypatch, tmp_path, PlayedHost("n1", target(rank=0)))
    with pytest.raises(FolderError):
        await collected(monkeypatch, tmp_path, PlayedHost("n1", target("/", rank=0)))
    assert files(tmp_path) == [f"capture={ID}/host=n1/rank=0/trace=1abc/events.parquet"]


async def test_a_folder_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    (tmp_path / f"capture={ID}").write_text("a file")
    with pytest.raises(FolderError, match="cannot be written"):
        await collected(monkeypatch, tmp_path, PlayedHost("n1", target(rank=0)))

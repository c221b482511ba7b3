"""Traces of hosts in a folder of the user's: whole, or missing with a reason; nothing elsewhere."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from profclient.errors import ClientError, NotFoundError, UsageError
from profclient.fleet import collect as collecting
from profclient.fleet import way as ways
from profclient.fleet.collect import HOST_BYTES_MAX, collect
from profclient.fleet.host import Disconnected
from profclient.fleet.way import Way
from profclient.layout import COMMIT_FILE, NULL, CaptureFolder
from profd.limits import CAPTURE_TRACES_MAX, COMMIT_BYTES_MAX
from profproto.v1 import capture_pb2 as pb
from profproto.v1 import query_pb2

from tests.support.bundles import bundle
from tests.support.cancelled import assert_writes_nowhere
from tests.support.small_disk import free_bytes, small_disk

ID = "f0123456789ab"


class PlayedHost:
    """Has these targets, and traces of those that name one; an answer may break off, or be another."""

    def __init__(
        self,
        name: str,
        *targets: pb.TargetStatus,
        fails: Exception | None = None,
        said: bytes | None = None,
        capture: str = "",
        endless: bool = False,
        owner: str = "",
    ) -> None:
        self.name, self._targets, self._fails, self._said, self._owner = name, targets, fails, said, owner
        self._capture, self._endless, self.sent = capture or f"c-{name}", endless, 0

    async def reach(self) -> None: ...

    async def leave(self) -> None: ...

    async def call(self, method: str, request: Any) -> pb.Capture:
        if not self._targets:
            raise NotFoundError("you have no capture")
        return pb.Capture(id=self._capture, owner=self._owner, targets=self._targets)

    async def ask(self, request: query_pb2.QueryRequest) -> AsyncIterator[bytes]:
        assert request.scope.capture == self._capture
        stored = [target for target in self._targets if target.trace]
        ranks = [target.rank if target.HasField("rank") else None for target in stored]
        if request.name == "traces":
            traces = [
                {"trace": target.trace, "rank": rank, "host": "its own name", "events": 1}
                for target, rank in zip(stored, ranks, strict=True)
            ]
            yield json.dumps({"traces": traces}).encode() if self._said is None else self._said
            return
        files = {f"{target.trace}/meta.json": self.name.encode() for target in stored}
        whole = bundle({"profd-bundle": b"1\n", **files})
        while self._endless:
            self.sent += 1 << 16
            yield bytes(1 << 16)
        yield whole[:700]
        if self._fails is not None:
            raise self._fails
        yield whole[700:]


def target(trace: str = "1abc", **more: Any) -> pb.TargetStatus:
    return pb.TargetStatus(pid=1, trace=trace, state=pb.STATE_STORED, **more)


@contextmanager
def reached(monkeypatch: pytest.MonkeyPatch, *hosts: PlayedHost) -> Iterator[Way]:
    @asynccontextmanager
    async def reachable(way: Way) -> AsyncIterator[dict[str, PlayedHost]]:
        yield {host.name: host for host in hosts}

    with monkeypatch.context() as patched:
        patched.setattr(ways, "reachable", reachable)
        yield Way(tuple(host.name for host in hosts), "x {host}")


async def collected(
    monkeypatch: pytest.MonkeyPatch, to: Path, *hosts: PlayedHost, host_bytes: int = HOST_BYTES_MAX
) -> dict[str, Any]:
    with reached(monkeypatch, *hosts) as way:
        return await collect(way, ID, to, [("n9", "no route")], bytes_per_second=1 << 40, host_bytes=host_bytes)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def test_the_layout_and_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bad = pb.TargetStatus(pid=2, rank=3, state=pb.STATE_FAILED, message="it ended")
    hosts = PlayedHost("n1", target(rank=0), bad), PlayedHost("n2", target("2def")), PlayedHost("n3")
    written = await collected(monkeypatch, tmp_path, *hosts)
    assert files(tmp_path) == [
        f"capture={ID}/{COMMIT_FILE}",
        f"capture={ID}/host=n1/rank=0/trace=1abc/meta.json",
        f"capture={ID}/host=n2/rank={NULL}/trace=2def/meta.json",
    ]
    first = written["traces"][0]
    assert (tmp_path / f"capture={ID}" / first["path"] / "meta.json").read_text() == "n1"
    assert (first["host"], first["capture"], first["files"]["meta.json"]["bytes"]) == ("n1", "c-n1", 2)
    assert json.loads((tmp_path / f"capture={ID}" / COMMIT_FILE).read_text()) == written
    assert [(one["host"], one["rank"], one["why"]) for one in written["missing"]] == [
        ("n1", 3, "it ended"),
        ("n3", None, "you have no capture"),
        ("n9", None, "no route"),
    ]


class AskedByPrograms(PlayedHost):
    """Its programs asked one after the other: several captures of the fleet, and others beside them."""

    def __init__(self, name: str, *targets: pb.TargetStatus) -> None:
        super().__init__(name, *targets)
        fleet = pb.Fleet(id=ID, host=name, hosts=2, found="programs")
        self._captures = [
            pb.Capture(id=f"c-{one.trace}" + "x" * number, owner="ann", fleet=fleet, targets=[one])
            for number, one in enumerate(self._targets)
        ]
        self._others = [pb.Capture(id="c-0"), pb.Capture(id="c-00", owner="bob", fleet=fleet, targets=[target("9")])]

    async def call(self, method: str, request: Any) -> Any:
        if method == "ListCaptures":
            return pb.ListCapturesResponse(captures=[*self._others, *self._captures])
        return self._captures[0]

    async def ask(self, request: query_pb2.QueryRequest) -> AsyncIterator[bytes]:
        (found,) = (capture for capture in self._captures if capture.id == request.scope.capture)
        async for piece in PlayedHost(self.name, *found.targets, capture=found.id).ask(request):
            yield piece


async def test_all_captures_of_programs_that_asked_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host = AskedByPrograms("n1", target("1abc", rank=0), target("2def", rank=1))
    written = await collected(monkeypatch, tmp_path, host)
    assert [(one["capture"], one["rank"]) for one in written["traces"]] == [("c-1abc", 0), ("c-2defx", 1)]
    assert [one["host"] for one in written["missing"]] == ["n9"]
    assert len(list(tmp_path.rglob("meta.json"))) == 2


async def test_an_answer_that_breaks_off_leaves_nothing_of_its_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = PlayedHost("n1", target(rank=0), fails=Disconnected("gone"))
    written = await collected(monkeypatch, tmp_path, broken, PlayedHost("n2", target("2def")))
    assert [one["host"] for one in written["traces"]] == ["n2"]
    assert written["missing"][0] == {"host": "n1", "rank": 0, "why": "gone"}
    assert not list(tmp_path.rglob("host=n1"))


async def test_without_a_trace_there_is_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written = await collected(monkeypatch, tmp_path, PlayedHost("n1", target(rank=0), fails=Disconnected("gone")))
    assert (written["traces"], len(written["missing"])) == ([], 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "said",
    [
        b'{"traces": [{"trace": "../../../x", "rank": 0}]}',
        b'{"traces": [{"trace": "a/b", "rank": 0}]}',
        b'{"traces": [{"trace": "1abc", "rank": -1}]}',
        b'{"traces": [{"trace": "1abc", "rank": "../0"}]}',
        b'{"traces": [{"trace": "1abc", "rank": true}]}',
        b'{"traces": [7]}',
        b"[" * 100_000,
        b"\xff",
        b'{"traces": [' + b",".join([b'{"trace": "1abc", "rank": 0}'] * 4097) + b"]}",
        b"x" * (5 << 20),
    ],
    ids=(
        "a path",
        "a slash",
        "rank",
        "a path as rank",
        "true as rank",
        "a number",
        "nested",
        "no text",
        "many",
        "long",
    ),
)
async def test_a_list_that_no_profd_sends_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: bytes
) -> None:
    written = await collected(monkeypatch, tmp_path, PlayedHost("n1", target(rank=0), said=said))
    assert written["traces"] == []
    assert "list" in written["missing"][0]["why"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("other", [0, 1])
async def test_a_trace_that_a_host_lists_twice_ends_it_for_that_host_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, other: int
) -> None:
    said = json.dumps({"traces": [{"trace": "1abc", "rank": 0}, {"trace": "1abc", "rank": other}]}).encode()
    hostile, by_programs = (
        PlayedHost("n1", target(rank=0), said=said),
        AskedByPrograms("n2", target("2a"), target("2a")),
    )
    written = await collected(monkeypatch, tmp_path, hostile, by_programs, PlayedHost("n3", target("2def")))
    assert [one["host"] for one in written["traces"]] == ["n3"]
    twice = "its list has a trace twice: no profd's has."
    assert [(one["host"], one["why"]) for one in written["missing"][:2]] == [("n1", twice), ("n2", twice)]


async def test_an_id_that_two_hosts_have_is_the_first_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Exported captures in which an id comes twice are not read at all."""
    hosts = PlayedHost("n1", target(rank=0)), PlayedHost("n2", target(rank=1), target("2def"))
    written = await collected(monkeypatch, tmp_path, *hosts)
    assert [(one["host"], one["trace"]) for one in written["traces"]] == [("n1", "1abc"), ("n2", "2def")]
    assert (written["missing"][0]["host"], written["missing"][0]["rank"]) == ("n2", 1)
    assert "1abc, as one of n1 has" in written["missing"][0]["why"]
    assert sorted(path.parent.name for path in tmp_path.rglob("meta.json")) == ["trace=1abc", "trace=2def"]


async def test_a_capture_that_another_user_calls_so_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An administrator sees captures of all, and a host may have none of the user who is meant."""
    others = PlayedHost("n1", target("1abc"), owner="mallory"), PlayedHost("n2", target("2def"), owner="alice")
    written = await collected(monkeypatch, tmp_path, *others, PlayedHost("n3", target("3abc"), owner="alice"))
    assert [one["host"] for one in written["traces"]] == ["n2", "n3"]
    assert not (tmp_path / f"capture={ID}" / "host=n1").exists()
    [(host, why), _] = [(one["host"], one["why"]) for one in written["missing"]]
    assert host == "n1"
    assert all(words in why for words in ("is of mallory", "of alice", "--hosts n1"))


async def test_a_host_that_sends_without_end_is_missing_and_the_others_are_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hostile = PlayedHost("n1", target(rank=0), endless=True)
    written = await collected(monkeypatch, tmp_path, hostile, PlayedHost("n2", target("2def")), host_bytes=1 << 20)
    assert [one["host"] for one in written["traces"]] == ["n2"]
    assert "more than 1,048,576 bytes, which --host-bytes allows" in written["missing"][0]["why"]
    assert hostile.sent == (1 << 20) + (1 << 16)


@pytest.mark.parametrize(("bound", "most"), [("COMMIT_TRACES_MAX", 8), ("COMMIT_BYTES_MAX", 1500)])
async def test_a_host_that_says_too_much_for_anybody_to_read_is_missing_and_the_others_are_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bound: str, most: int
) -> None:
    monkeypatch.setattr(collecting, bound, most)
    hostile = PlayedHost("n2", *(target(f"2abc{at}", rank=at) for at in range(7)))
    hosts = PlayedHost("n1", target(rank=0)), hostile, PlayedHost("n3", target("3def"))
    written = await collected(monkeypatch, tmp_path, *hosts)
    assert [one["host"] for one in written["traces"]] == ["n1", "n3"]
    assert [one["host"] for one in written["missing"]] == ["n2", "n9"]
    assert re.match(rf"it has [\d,]+ .*: with others' these are more than {most:,}, ", written["missing"][0]["why"])
    assert sorted(path.parent.name for path in tmp_path.rglob("meta.json")) == ["trace=1abc", "trace=3def"]


async def test_hosts_that_all_have_much_are_all_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other engines read captures that are too large for profctl."""
    monkeypatch.setattr(collecting, "COMMIT_TRACES_MAX", 3)
    hosts = [PlayedHost(f"n{at}", target(f"{at}a"), target(f"{at}b")) for at in range(3)]
    assert len((await collected(monkeypatch, tmp_path, *hosts))["traces"]) == 6


def test_what_is_collected_can_be_read() -> None:
    assert collecting.COMMIT_TRACES_MAX == CAPTURE_TRACES_MAX
    assert collecting.COMMIT_BYTES_MAX < COMMIT_BYTES_MAX


async def test_a_host_that_never_ends_is_missing_and_the_others_are_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class First(PlayedHost):
        async def leave(self) -> None:
            monkeypatch.setattr(collecting, "HOST_SECONDS", 0.01)

    class Slow(PlayedHost):
        async def ask(self, request: query_pb2.QueryRequest) -> AsyncIterator[bytes]:
            yield b"{"
            await asyncio.Event().wait()

    monkeypatch.setattr(collecting, "AT_ONCE", 1)
    written = await collected(monkeypatch, tmp_path, First("n1", target()), Slow("n2", target("2def")))
    assert [one["host"] for one in written["traces"]] == ["n1"]
    assert written["missing"][0]["why"].startswith("it has not sent all within ")


async def test_an_answer_that_nobody_has_thought_of_is_that_hosts_alone_and_nothing_of_it_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Strange(AskedByPrograms):
        async def ask(self, request: query_pb2.QueryRequest) -> AsyncIterator[bytes]:
            if request.name == "export" and request.scope.capture == "c-2abcx":
                assert list(tmp_path.rglob("host=n1/*/trace=1abc/meta.json"))
                raise RecursionError("maximum depth")
            async for piece in super().ask(request):
                yield piece

    hosts = Strange("n1", target(), target("2abc")), PlayedHost("n2", target("2def"))
    written = await collected(monkeypatch, tmp_path, *hosts)
    assert [one["host"] for one in written["traces"]] == ["n2"]
    assert written["missing"][0]["why"] == "profctl could not go on here: RecursionError('maximum depth')"
    assert not list(tmp_path.rglob("host=n1"))


async def test_a_host_gets_no_more_of_the_disk_than_leaves_a_reserve(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=100 << 20, free=8 << 20))
    hostile = PlayedHost("n1", target(rank=0), endless=True)
    written = await collected(monkeypatch, tmp_path, hostile)
    assert "5% of the disk stay free" in written["missing"][0]["why"]
    assert hostile.sent <= (3 << 20) + (1 << 16)  # as much again is needed where it is unpacked


async def test_a_disk_that_is_full_keeps_nothing_of_the_host_and_takes_others_afterwards(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with small_disk(tmp_path, "4m") as folder:
        free = free_bytes(folder)
        written = await collected(monkeypatch, folder, PlayedHost("n1", target(rank=0), endless=True))
        assert "5% of the disk stay free" in written["missing"][0]["why"]
        assert (list(folder.iterdir()), free_bytes(folder)) == ([], free)
        written = await collected(monkeypatch, folder, PlayedHost("n2", target("2def")))
        assert [one["host"] for one in written["traces"]] == ["n2"]
        # AND one that is full to the last byte is named, with what the system says
        (folder / "others").write_bytes(bytes(free_bytes(folder)))
        monkeypatch.setattr(collecting, "FREE_MIN", -1.0)
        with pytest.raises(UsageError, match="No space left"):
            await collected(monkeypatch, folder / "there", PlayedHost("n1", target(rank=0), endless=True))


async def test_a_disk_that_stands_still_keeps_no_other_host_waiting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    standing, asked = threading.Event(), threading.Event()

    class Standing(io.BytesIO):
        """Takes nothing before another host has been asked for its traces."""

        def write(self, data: Any) -> int:
            standing.set()
            assert asked.wait(120)
            return super().write(data)

    class Second(PlayedHost):
        async def ask(self, request: query_pb2.QueryRequest) -> AsyncIterator[bytes]:
            if request.name == "export":
                asked.set()
            async for piece in super().ask(request):
                yield piece

        async def call(self, method: str, request: Any) -> pb.Capture:
            assert await asyncio.to_thread(standing.wait, 20)
            return await super().call(method, request)

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Standing())
    hosts = PlayedHost("n1", target(rank=0)), Second("n2", target("2def", rank=1))
    written = await collected(monkeypatch, tmp_path, *hosts)
    assert [one["host"] for one in written["traces"]] == ["n1", "n2"]


async def test_an_id_of_a_capture_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It would stand in the commit beside each of thousands of traces."""
    written = await collected(monkeypatch, tmp_path, PlayedHost("n1", target(rank=0), capture="c" * 65))
    assert "is no id of a capture" in written["missing"][0]["why"]
    assert written["traces"] == []


async def test_words_of_a_host_are_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bad = pb.TargetStatus(pid=2, state=pb.STATE_FAILED, message="x" * 5_000_000)
    written = await collected(monkeypatch, tmp_path, PlayedHost("n1", bad))
    assert written["missing"][0]["why"] == "x" * 1000 + "…"


async def test_a_folder_that_is_there_is_not_written_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    await collected(monkeypatch, tmp_path, PlayedHost("n1", target(rank=0)))
    with pytest.raises(UsageError, match="is there already"):
        await collected(monkeypatch, tmp_path, PlayedHost("n1", target("2def", rank=0)))
    assert files(tmp_path) == [f"capture={ID}/{COMMIT_FILE}", f"capture={ID}/host=n1/rank=0/trace=1abc/meta.json"]


async def test_a_folder_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClientError, match="cannot be written"):
        await collected(monkeypatch, tmp_path / "file" / "below", PlayedHost("n1", target(rank=0)))


async def test_nothing_is_written_once_it_is_interrupted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The descriptors of the folder are others' by then."""
    entered, go_on, (into, elsewhere) = (
        threading.Event(),
        threading.Event(),
        (tmp_path / "into", tmp_path / "elsewhere"),
    )
    elsewhere.mkdir()

    def late(folder: CaptureFolder, traces: Any, unpacked: Iterator[bytes]) -> list[dict[str, Any]]:
        above = folder._above
        entered.set()
        assert go_on.wait(120)
        os.close(os.open("late", os.O_CREAT | os.O_WRONLY, dir_fd=above))
        return []

    monkeypatch.setattr(CaptureFolder, "add", late)
    collecting = asyncio.create_task(collected(monkeypatch, into, PlayedHost("n1", target(rank=0))))
    await assert_writes_nowhere(collecting, entered, go_on, elsewhere)
    assert files(into) == ["late"]

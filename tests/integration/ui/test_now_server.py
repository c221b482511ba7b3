"""The routes of the page Now: those that change something are there under --write alone, and watching is no use."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from profclient.errors import BusyError
from profclient.ui import now
from profclient.ui.asking import Library
from profclient.ui.captures import LISTED
from profclient.ui.now import WATCH, WATCHES_MAX, WRITES, Watches

from tests.integration.ui.test_server import request, serving

GOOD = {"pids": [1], "seconds": 1}


@pytest.mark.parametrize("path", WRITES)
def test_nothing_is_changed_without_write(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WRITES, path, lambda asked: {"done": asked})
    with serving() as server:
        assert request(server, "POST", path).status == 404
        assert request(server, "POST", "/api/host").json["write"] is False
    with serving(write=True) as server:
        assert request(server, "POST", path, b"{}").json == {"done": {}}
        assert request(server, "POST", path, Authorization=None).status == 401
        assert request(server, "POST", path, Origin="http://evil.example").status == 403


@pytest.mark.parametrize(
    "asked",
    [
        [],
        {},
        {**GOOD, "pids": []},
        {**GOOD, "pids": [0]},
        {**GOOD, "pids": [True]},
        {**GOOD, "pids": ["1"]},
        {**GOOD, "pids": [1] * 257},
        {**GOOD, "iterations": 1},
        {"pids": [1]},
        {**GOOD, "seconds": 0},
        {**GOOD, "seconds": 601},
        {**GOOD, "seconds": "1"},
        {"pids": [1], "iterations": 0},
        {"pids": [1], "iterations": 10_001},
        {"pids": [1], "iterations": 1.5},
    ],
    ids=json.dumps,
)
def test_an_order_that_is_none_is_refused(asked: Any) -> None:
    with serving(write=True) as server:
        for path in ("/api/estimate", "/api/start"):
            body = {**asked, "request_id": "ab"} if isinstance(asked, dict) else asked
            got = request(server, "POST", path, json.dumps(body).encode())
            assert (got.status, got.json["kind"]) == (400, "usage")


@pytest.mark.parametrize("capture", ["", None, "f0123456789ab", "../c1", ["c1"]])
def test_a_stop_says_which_capture(capture: Any) -> None:
    with serving(write=True) as server:
        assert request(server, "POST", "/api/stop", json.dumps({"capture": capture}).encode()).status == 400


def test_a_start_has_an_id_that_begins_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(write=True) as server:
        got = request(server, "POST", "/api/start", json.dumps(GOOD).encode())
    assert (got.status, got.json["error"]) == (400, "a start has a request_id, which never begins two captures.")


@pytest.mark.parametrize("path", [WATCH, LISTED])
def test_a_store_has_no_processes_and_no_captures(tmp_path: Path, path: str) -> None:
    with serving(library=Library(tmp_path)) as server:
        got = request(server, "POST", path)
    assert (got.status, got.json["kind"]) == (400, "usage")


@pytest.mark.parametrize(
    "asked", [[], {"capture": ["c1"]}, {"capture": "f0123456789ab"}, {"capture": "../c1"}], ids=json.dumps
)
def test_a_capture_is_asked_for_by_its_id(asked: Any) -> None:
    with serving(library=Library()) as server:
        got = request(server, "POST", LISTED, json.dumps(asked).encode())
    assert (got.status, got.json["kind"]) == (400, "usage")


def test_lines_come_whole_and_an_error_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(asker: socket.socket) -> Iterator[bytes]:
        yield b'{"whole": true}\n'
        raise BusyError("the daemon is full: try again")

    monkeypatch.setattr(now, "_told", told)
    with serving(library=Library()) as server:
        before = server._unused_at
        got = request(server, "POST", WATCH)
        assert server._unused_at == before  # a page that is left open is not used
        assert request(server, "POST", WATCH, Authorization=None).status == 401
    lines = [json.loads(line) for line in got.body.splitlines()]
    assert lines == [{"whole": True}, {"error": "the daemon is full: try again", "kind": "busy"}]


def test_tabs_that_watch_are_few_and_their_places_are_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(now, "_told", lambda asker: iter([b"{}\n", b"{}\n"]))
    watches = Watches(Library())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        held = [watches.lines(ours) for _ in range(WATCHES_MAX)]
        for one in held:
            next(one)
        with pytest.raises(BusyError, match="close one of them"):
            next(watches.lines(ours))
        held[0].close()  # type: ignore[attr-defined]  # a generator
        with closing(watches.lines(ours)) as again:  # type: ignore[type-var]  # a generator
            assert next(again) == b"{}\n"

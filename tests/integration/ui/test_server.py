"""The server of the page, over real sockets: what it lets in, and what it answers."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from profclient.errors import ClientError, UsageError
from profclient.offline import OfflineTraces
from profclient.ui import asking
from profclient.ui.asking import Library
from profclient.ui.handler import BODY_BYTES_MAX, page_files
from profclient.ui.listener import CONNECTIONS_MAX
from profclient.ui.server import PageServer
from profd.store.lock import StoreLock
from profd.store.store import Store, StoreLimits
from profd.trust.caller import Caller

from tests.support.waiting import PATIENCE_SECONDS, until
from tests.unit.profd.store.stored import add

OTHER = 65533
ROUTES = [("GET", "/"), ("GET", "/static/app.js"), ("POST", "/enter"), ("POST", "/api/host"), ("POST", "/api/ask")]
FORM = "application/x-www-form-urlencoded"


@contextmanager
def serving(**given: Any) -> Iterator[PageServer]:
    given.setdefault("library", Library(Path("/nonexistent/store")))
    with PageServer(page="/trace/1abc", **given) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join()


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    with serving() as one:
        yield one


class Got:
    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = {name.lower(): value for name, value in answer.getheaders()}
        self.body = answer.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def request(server: PageServer, method: str, path: str, body: bytes = b"{}", **headers: str | None) -> Got:
    """As the page asks; headers by name, None for none."""
    all_of_them: dict[str, str | None] = {
        "Host": f"{server.address}:{server.port}",
        "Origin": server.url.rstrip("/") if method == "POST" else None,
        "Content-Type": "application/json",
        "Authorization": f"Bearer {server.keys.session}",
        "Content-Length": str(len(body)) if method == "POST" else None,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    with closing(http.client.HTTPConnection(server.address, server.port, timeout=PATIENCE_SECONDS)) as connection:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in all_of_them.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(body if method == "POST" else None)
        return Got(connection.getresponse())


def enter(server: PageServer, key: str, origin: str | None = "null", **headers: str | None) -> Got:
    """As the form in the user's file does it, without any key of the session."""
    body = urllib.parse.urlencode({"key": key}).encode()
    given = {"Origin": origin, "Content_Type": FORM, "Authorization": None, **headers}
    return request(server, "POST", "/enter", body, **given)


def test_it_listens_on_loopback_alone(server: PageServer) -> None:
    assert ipaddress.ip_address(server.socket.getsockname()[0]).is_loopback


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=[path for _, path in ROUTES])
def test_another_name_of_the_server_is_refused_on_every_route(server: PageServer, method: str, path: str) -> None:
    for host in (
        "evil.example",
        f"evil.example:{server.port}",
        server.address,
        f"{server.address}:{server.port + 1}",
        None,
    ):
        got = request(server, method, path, Host=host)
        assert got.status == 421
        assert f"must begin at port {server.port}".encode() in got.body


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=[path for _, path in ROUTES])
def test_a_page_of_another_server_is_refused_on_every_route(server: PageServer, method: str, path: str) -> None:
    origins = ["http://evil.example", f"http://127.0.0.1:{server.port}", f"https://{server.address}:{server.port}"]
    for origin in origins if path == "/enter" else [*origins, "null"]:
        assert request(server, method, path, Origin=origin).status == 403


@pytest.mark.parametrize("path", ["/api/host", "/api/traces", "/api/captures", "/api/ask", "/api/other", "/"])
def test_nothing_is_answered_without_the_key(server: PageServer, path: str) -> None:
    for wrong in (None, "Bearer", f"Bearer {server.keys.session[:-1]}", f"Basic {server.keys.session}"):
        got = request(server, "POST", path, Authorization=wrong, Cookie=f"key={server.keys.session}")
        assert got.status == 401
        assert got.json["kind"] == "denied"


def test_a_key_in_the_address_is_none(server: PageServer) -> None:
    assert request(server, "POST", f"/api/host?key={server.keys.session}", Authorization=None).status == 401


def test_the_form_in_a_file_lets_in_once(server: PageServer) -> None:
    come = []
    server.on_page = lambda: come.append(1)
    page = server.entrance
    key = page.partition('name="key" value="')[2].partition('"')[0]
    assert f'action="{server.url}enter"' in page
    got = enter(server, key)
    assert got.status == 200
    assert f'content="{server.keys.session}"'.encode() in got.body
    assert b'content="/trace/1abc"' in got.body
    assert come == [1]
    again = enter(server, key)
    assert again.status == 403
    assert server.keys.session.encode() not in again.body


def test_the_printed_address_lets_in_once_and_only_from_our_page(server: PageServer) -> None:
    def by_page(key: str, **headers: str | None) -> Got:
        return request(server, "POST", "/enter", json.dumps({"key": key}).encode(), Authorization=None, **headers)

    key = server.keys.for_terminal()
    assert by_page(key).json == {"session": server.keys.session, "page": "/trace/1abc"}
    assert by_page(key).status == 403
    assert by_page(server.keys.for_terminal(), Origin="null").status == 403
    assert by_page(server.keys.for_file()).status == 403
    assert enter(server, server.keys.for_terminal()).status == 403


def test_a_wrong_key_does_not_let_in(server: PageServer) -> None:
    assert enter(server, "").status == 403
    assert enter(server, server.keys.session).status == 403
    assert enter(server, server.keys.for_file(), Content_Type="text/plain").status == 403
    assert enter(server, server.keys.for_file(), Host="evil.example").status == 421


def test_every_answer_has_the_headers_and_none_a_cookie(server: PageServer) -> None:
    answers = [request(server, method, path) for method, path in ROUTES]
    answers += [enter(server, server.keys.for_file()), request(server, "GET", "/nothing"), request(server, "PUT", "/")]
    answers += [request(server, "GET", f"/static/{name}") for name in page_files()]
    for got in answers:
        policy = dict(part.split(" ", 1) for part in got.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert got.headers["x-content-type-options"] == "nosniff"
        assert got.headers["referrer-policy"] == "no-referrer"
        assert got.headers["cache-control"] == "no-store"
        assert not {"set-cookie", "access-control-allow-origin"} & got.headers.keys()
        assert "Python" not in got.headers["server"]


@pytest.mark.parametrize("path", ["/static/", "/static/../server.py", "/static/%2e%2e/server.py", "/app.js", "/static"])
def test_there_are_no_files_but_those_of_the_page(server: PageServer, path: str) -> None:
    assert request(server, "GET", path).status == 404


def test_files_of_the_page_have_no_script_in_their_markup(server: PageServer) -> None:
    page = request(server, "GET", "/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.body.count(b"<script") == page.body.count(b'<script type="module" src="/static/') == 1
    assert b"style=" not in page.body
    assert {name.rpartition(".")[2] for name in page_files()} == {"css", "html", "js", "svg"}


@pytest.mark.parametrize("question", ["rm", "pin", "share", "import", "rebuild", "list", "export", "", None, ["top"]])
def test_what_does_not_read_cannot_be_asked(server: PageServer, question: Any) -> None:
    got = request(server, "POST", "/api/ask", json.dumps({"question": question}).encode())
    assert (got.status, got.json["kind"]) == (400, "usage")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'"top"',
        b"\xff",
        b"[" * 100_000,
        b'{"question": "top", "trace": 1}',
        b'{"question": "top", "trace": "\\ud800"}',
        b'{"question": "top", "arguments": []}',
        b'{"question": "top", "arguments": {"trace": "1abc"}}',
        b'{"question": "top", "arguments": {"id": "1abc"}}',
        b'{"question": "top", "arguments": {"--store": "x"}}',
        b'{"question": "top", "arguments": {"limit": {"a": 1}}}',
    ],
    ids=lambda body: body[:40].decode("ascii", "replace"),
)
def test_a_question_that_is_none_is_refused(server: PageServer, body: bytes) -> None:
    got = request(server, "POST", "/api/ask", body)
    assert (got.status, got.json["kind"]) == (400, "usage")


def test_an_error_of_the_store_is_a_sentence(server: PageServer) -> None:
    got = request(server, "POST", "/api/ask", b'{"question": "top"}')
    assert (got.status, got.json["kind"]) == (404, "not_found")
    assert "/nonexistent/store" in got.json["error"]


def test_requests_are_bounded(server: PageServer) -> None:
    assert request(server, "POST", "/api/host", Content_Length=str(BODY_BYTES_MAX + 1)).status == 413
    assert request(server, "POST", "/api/host", Content_Length="9" * 400).status == 413
    assert request(server, "POST", "/api/host", Content_Length="0" * 12 + "9" * 12).status == 413
    for length in (None, "-1", "+1", "x"):
        assert request(server, "POST", "/api/host", Content_Length=length).status == 411
    assert request(server, "POST", "/api/host", Transfer_Encoding="chunked").status == 411
    assert request(server, "POST", "/api/host", Content_Type="text/plain").status == 415
    assert request(server, "GET", "/" + "x" * 100_000).status == 414
    assert request(server, "GET", "/", X_Long="x" * 100_000).status == 431


def test_a_refused_request_leaves_nothing_to_be_read_as_the_next_one(server: PageServer) -> None:
    """Its body could be a request with another name of the server."""
    name = f"Host: {server.address}:{server.port}\r\n".encode()
    inner = b"GET / HTTP/1.1\r\n%s\r\n" % name
    refused = b"POST /api/host HTTP/1.1\r\nHost: evil\r\nContent-Length: %d\r\n\r\n%s" % (len(inner), inner)
    last = b"GET /nothing HTTP/1.1\r\nConnection: close\r\n%s\r\n" % name
    with socket.create_connection((server.address, server.port)) as connection:
        connection.sendall(refused + last)
        answers = b"".join(iter(lambda: connection.recv(65536), b""))
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"421", b"404"]


def test_more_connections_than_a_browser_has_are_closed() -> None:
    with serving() as server:
        held = [socket.create_connection((server.address, server.port)) for _ in range(CONNECTIONS_MAX)]
        with socket.create_connection((server.address, server.port), PATIENCE_SECONDS) as one:
            assert one.recv(1) == b""
        for connection in held:
            connection.close()
        until(lambda: _answers(server), "there is room again")


def _answers(server: PageServer) -> bool:
    try:
        return request(server, "GET", "/").status == 200
    except (OSError, http.client.HTTPException):
        return False


# As another user who was told everything: the session's key, and a key that is good once.
ASKS = """
import encodings.idna, os, socket, sys  # what is imported later others may not be able to read
uid, address, port, session, once = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4:]
os.setgroups([]); os.setgid(uid); os.setuid(uid)
head = f"Host: {address}:{port}\\r\\nContent-Type: application/json\\r\\nAuthorization: Bearer {session}\\r\\n"
form = f"key={once}"
for text in (
    f"GET / HTTP/1.1\\r\\n{head}\\r\\n",
    f"POST /api/host HTTP/1.1\\r\\n{head}Content-Length: 2\\r\\n\\r\\n{{}}",
    f"POST /enter HTTP/1.1\\r\\nHost: {address}:{port}\\r\\nOrigin: null\\r\\n"
    f"Content-Type: application/x-www-form-urlencoded\\r\\nContent-Length: {len(form)}\\r\\n\\r\\n{form}",
):
    answer = b""
    with socket.create_connection((address, port)) as connection:
        try:
            connection.sendall(text.encode())
            answer = connection.recv(1000)
        except ConnectionError:
            pass
    print(answer)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="another uid takes root")
def test_another_user_gets_not_a_byte_whatever_it_knows() -> None:
    told: list[str] = []
    with serving(say=told.append) as server:
        once = server.keys.for_file()
        told_of = [server.address, str(server.port), server.keys.session, once]
        words = [sys.executable, "-c", ASKS, str(OTHER), *told_of]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
        assert done.stdout.splitlines() == ["b''"] * 3
        assert request(server, "GET", "/").status == 200
        assert enter(server, once).status == 200  # nothing was used up
    assert [text.startswith(f"a connection of uid {OTHER} was refused") for text in told] == [True]


def test_it_ends_when_nobody_uses_it() -> None:
    with PageServer(Library(), unused_seconds=0.01) as server:
        server.serve()


def test_looking_without_the_key_is_no_use(server: PageServer) -> None:
    before = server._unused_at
    request(server, "GET", "/")
    request(server, "POST", "/api/host", Authorization=None)
    assert server._unused_at == before
    request(server, "POST", "/api/host")
    assert server._unused_at > before


def test_nothing_is_written_to_the_terminal(server: PageServer, capfd: pytest.CaptureFixture[str]) -> None:
    request(server, "POST", "/api/host")
    request(server, "GET", "/nothing")
    assert capfd.readouterr() == ("", "")


def test_a_store_answers_without_a_daemon(tmp_path: Path) -> None:
    library = Library(store_of_one(tmp_path))
    with serving(library=library) as server:
        (trace,) = request(server, "POST", "/api/traces").json
        assert trace["owner_uid"] == os.getuid()
        asked = {"question": "top", "trace": trace["id"][:8], "arguments": {"limit": 2, "raw": True}}
        rows = request(server, "POST", "/api/ask", json.dumps(asked).encode()).json
        assert rows == OfflineTraces(tmp_path).ask("top", trace["id"], limit=2, raw=True).value()
        assert len(rows) == 2
        assert request(server, "POST", "/api/host").json["store"] == str(tmp_path)


def test_an_answer_without_end_is_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rows of 10 kB, more of them than memory."""
    monkeypatch.setattr(asking, "ANSWER_BYTES_MAX", 100_000)
    library = Library(store_of_one(tmp_path))
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(UsageError, match="ask for less"):
        library.answer(asking.Question("sql", "", {"sql": "SELECT repeat('x', 10000) FROM range(1000)"}), ours)


def test_a_question_ends_with_who_asked_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = Library(store_of_one(tmp_path))
    long = asking.Question("sql", "", {"sql": "SELECT count(*) FROM range(100000000000) a WHERE a.range % 7 = 9"})
    begun = threading.Event()
    monkeypatch.setattr(asking, "_whole", lambda pieces: begun.set() or b"".join(pieces))
    ours, theirs = socket.socketpair()
    leaving = threading.Thread(target=lambda: begun.wait() and theirs.close())
    leaving.start()
    with ours, pytest.raises(ClientError, match="exit code -9"):
        library.answer(long, ours)
    leaving.join()


def test_a_question_of_somebody_who_has_gone_is_not_begun(tmp_path: Path) -> None:
    traces = OfflineTraces(store_of_one(tmp_path))
    traces.stop()
    with pytest.raises(ClientError, match="exit code -9"):
        traces.ask("top", "").value()


def store_of_one(folder: Path) -> Path:
    """A store with one trace of ours."""
    store = Store(folder, StoreLimits(free_share_min=0.0, uid_share=1.0), StoreLock(folder, "offline", 1.0))
    add(store, Caller(os.getuid(), os.getgid(), "me", admin=False, pid=1))
    store.close()
    return folder

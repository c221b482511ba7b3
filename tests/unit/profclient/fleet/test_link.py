"""Carriers that fail, and relays that are none: each ends with a sentence, soon, and leaves no process."""

import asyncio
import json
import os
import socket
import sys
from pathlib import Path

import pytest
from profclient.errors import UnreachableError
from profclient.fleet import carrier
from profclient.fleet import link as links
from profclient.fleet.carrier import Alone
from profclient.fleet.link import RelayLink

from tests.support.waiting import eventually

SAYS_HELLO = """
import sys, os
from profclient.relay.lines import Writer
writer = Writer()
out = lambda data: os.write(1, data)
out(writer.line("hello", 0, b'{"version": 1}'))
"""


def program(code: str) -> list[str]:
    return [sys.executable, "-c", code]


async def opened(command, path):
    return await RelayLink.opened(await Alone.started(command), path)


def carried(link: RelayLink) -> Alone:
    assert isinstance(link._carrier, Alone)
    return link._carrier


async def refused(tmp_path: Path, *command: str) -> str:
    with pytest.raises(UnreachableError) as caught:
        await opened(command, tmp_path / "s")
    return str(caught.value)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("/no/such/command",), "cannot be run"),
        (("sh", "-c", "echo 'Connection refused by node1' >&2; exit 255"), "code 255: Connection refused by node1"),
        (("sh", "-c", "exit 127"), "--remote-python"),
        (("sh", "-c", "echo This account is not available; exit 1"), "code 1: This account is not available"),
        (program("import os\nwhile True: os.write(1, b'x' * 65536)"), "MiB came that are no lines"),
        (program("import os\nwhile True: os.write(1, b'hello\\n' * 9999)"), "MiB came that are no lines"),
        (program("print('@profd1 0 hello 0 - 00000000')"), "cut or was changed"),
        (program(SAYS_HELLO.replace("b'{", "b'x")), "no JSON"),
        (program(SAYS_HELLO.replace("b'{\"version\": 1}'", "b'[' * 10_000")), "no JSON"),
        (program(SAYS_HELLO.replace("b'{\"version\": 1}'", "b'7'")), "no JSON object"),
        (program(SAYS_HELLO.replace('"hello", 0', '"token", 0')), "nobody has asked"),
        (program(SAYS_HELLO.replace('"hello", 0', '"error", 0')), "gave up"),
    ],
)
async def test_what_carries_no_relay(tmp_path, command, why):
    assert why in await refused(tmp_path, *command)


async def test_a_carrier_that_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(links, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(carrier, "GOODBYE_SECONDS", 0.1)
    assert "said nothing" in await refused(tmp_path, *program("import time; time.sleep(600)"))


async def test_a_relay_that_ends_meanwhile_ends_what_is_asked(tmp_path):
    link = await opened(program(SAYS_HELLO + "sys.stdin.readline(); sys.stdin.readline()"), tmp_path / "s")
    try:
        with pytest.raises(UnreachableError, match="ended with exit code 0"):
            await link.token()
        with pytest.raises(UnreachableError, match="ended with exit code 0"):
            await link.clock()
    finally:
        await link.close()


async def test_terminals_do_not_obey_what_a_host_says(tmp_path):
    assert "\x1b" not in await refused(tmp_path, "sh", "-c", "printf '\\033[2J' >&2; exit 1")


async def test_a_relay_that_sends_more_than_the_window(tmp_path):
    """GIVEN a local end that reads nothing WHEN the relay sends all the same THEN it is held to its window."""
    flood = "while b' open ' not in sys.stdin.buffer.readline(): pass\n"
    flood += "for _ in range(200): out(writer.line('data', 1, bytes(12000)))\nsys.stdin.read()"
    link = await opened(program(SAYS_HELLO + flood), tmp_path / "s")
    try:
        with socket.socket(socket.AF_UNIX) as reads_nothing:
            reads_nothing.setblocking(False)
            await asyncio.get_running_loop().sock_connect(reads_nothing, str(tmp_path / "s"))
            await eventually(lambda: "window" in link.why_broken)
    finally:
        await link.close()


async def test_nothing_of_it_is_left(tmp_path):
    link = await opened(program(SAYS_HELLO + "sys.stdin.read()"), tmp_path / "s")
    pid = carried(link).pid
    assert (tmp_path / "s").is_socket()
    await link.close()
    assert not (tmp_path / "s").exists()
    assert not Path(f"/proc/{pid}").exists()


async def test_no_pipe_of_it_is_left_where_it_had_more_to_say():
    one = await Alone.started(program("import os\nwhile True: os.write(1, b'x' * 65536)"))
    await eventually(lambda: vars(one._output)["_paused"])
    one.give_up()
    await one.leave()
    assert carrier._transport(one._process).is_closing()


async def test_carriers_are_no_targets_and_hear_no_ctrl_c(tmp_path):
    code = SAYS_HELLO.replace(
        "b'{\"version\": 1}'",
        "__import__('json').dumps([os.environ['PROFD_ATTACH'], os.getsid(0)]).join(['{\"x\": ', '}']).encode()",
    )
    link = await opened(program(code + "\nsys.stdin.read()"), tmp_path / "s")
    try:
        attach, session = link.about["x"]
        assert (attach, session) == ("0", carried(link).pid)
        assert os.getsid(0) != session
        assert json.dumps(link.about)
    finally:
        await link.close()


ANSWERS = """
while line := sys.stdin.buffer.readline():
    kind = line.split()[2].decode()
    if kind in SAID:
        out(writer.line(kind, 0, SAID[kind]))
"""


@pytest.mark.parametrize("lasts", [b'"soon"', b"[]", b"-1", b"1e400", b"NaN", b"true"])
async def test_a_host_that_says_nonsense_of_its_token_breaks_nothing(tmp_path, lasts):
    said = {"token": b'{"token": "t", "expires_s": %b}' % lasts}
    link = await opened(program(SAYS_HELLO + f"SAID = {said!r}\n" + ANSWERS), tmp_path / "s")
    try:
        assert await link.token() == ("t", 60.0)
    finally:
        await link.close()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b'{"token": "a\\r\\nb: c"}', "none of a profd"),
        (b"{}", "the relay has no token, and does not say why"),
        ('{"token": "\N{SNOWMAN}"}'.encode(), "none of a profd"),
        (b'{"error": "' + b"x" * 5000 + b'"}', "^x{1000}…$"),
    ],
    ids=["lines", "nothing", "letters", "words"],
)
async def test_a_token_that_grpc_does_not_send_and_a_long_word_are_told_of_that_host(tmp_path, answer, says):
    """gRPC ended the whole command at such a token, for all hosts."""
    said = {"token": answer}
    link = await opened(program(SAYS_HELLO + f"SAID = {said!r}\n" + ANSWERS), tmp_path / "s")
    try:
        with pytest.raises(UnreachableError, match=says):
            await link.token()
    finally:
        await link.close()


@pytest.mark.parametrize("now", [b"1" + b"0" * 400, b"-1", b"1e999", b"true", b"null"])
async def test_a_host_that_is_in_no_time_is_not_reached(tmp_path, now):
    said = {"clock": b'{"unix_ns": %b}' % now}
    link = await opened(program(SAYS_HELLO + f"SAID = {said!r}\n" + ANSWERS), tmp_path / "s")
    try:
        with pytest.raises(UnreachableError, match="what time it is"):
            await link.clock()
    finally:
        await link.close()

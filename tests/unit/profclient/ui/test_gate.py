"""Who may ask: names of the server, origins of pages, keys."""

from __future__ import annotations

import pytest
from profclient.ui.gate import FILE_SECONDS, PRINTED_SECONDS, Keys, Names

NAMES = Names("127.93.7.40", 4711)
HOST = "127.93.7.40:4711"


@pytest.mark.parametrize("host", [HOST, "127.0.0.1:4711", "localhost:4711"])
def test_the_server_has_its_own_name_and_those_of_a_tunnel(host: str) -> None:
    assert NAMES.is_host(host)
    assert NAMES.is_origin(f"http://{host}", host)
    assert NAMES.is_origin(None, host)


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "127.93.7.40",
        "127.93.7.40:4712",
        "127.93.7.41:4711",
        "evil.example:4711",
        "localhost.evil.example:4711",
        f"{HOST} ",
    ],
)
def test_it_has_no_other(host: str | None) -> None:
    assert not NAMES.is_host(host)


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://127.93.7.40:4712",
        "http://127.0.0.1:4711",
        f"https://{HOST}",
        f"http://{HOST}/",
        "http://localhost:4711",
    ],
)
def test_pages_of_other_origins_are_others(origin: str) -> None:
    assert not NAMES.is_origin(origin, HOST)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("from_file", [True, False], ids=["file", "terminal"])
def test_a_key_is_good_once_and_for_its_way_in_alone(from_file: bool) -> None:
    keys = Keys()
    issue = keys.for_file if from_file else keys.for_terminal
    assert keys.redeem(issue(), from_file)
    used = issue()
    assert keys.redeem(used, from_file)
    assert not keys.redeem(used, from_file)
    misused = issue()
    assert not keys.redeem(misused, not from_file)
    assert not keys.redeem(misused, from_file)  # whoever tried it has seen it


@pytest.mark.parametrize(
    ("from_file", "seconds"), [(True, FILE_SECONDS), (False, PRINTED_SECONDS)], ids=["file", "terminal"]
)
def test_a_key_is_not_good_for_long(from_file: bool, seconds: float) -> None:
    clock = Clock()
    keys = Keys(clock)
    issue = keys.for_file if from_file else keys.for_terminal
    early, late = issue(), issue()
    clock.now = seconds - 1
    assert keys.redeem(early, from_file)
    clock.now = seconds
    assert not keys.redeem(late, from_file)


def test_only_the_sessions_key_opens() -> None:
    keys = Keys()
    assert keys.opens(f"Bearer {keys.session}")
    for wrong in (
        None,
        "",
        keys.session,
        "Bearer ",
        f"Basic {keys.session}",
        f"Bearer {keys.for_file()}",
        "Bearer \udce4",
    ):
        assert not keys.opens(wrong)
    assert keys.session not in repr(keys)
    assert keys.session != Keys().session

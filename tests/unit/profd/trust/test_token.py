"""Tokens: bound to a process, short-lived, forged ones refused."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.trust.caller import Caller
from profd.trust.token import TOKEN_BYTES_MAX, Tokens, Unidentified

CALLER = Caller(uid=51000, gid=100, user="ada", admin=False, pid=4711, groups=(4, 27), start_ticks=99)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def tokens(started: dict[int, int] | None = None, clock: Clock | None = None, *, lives: bool = False) -> Tokens:
    known = {4711: 99} if started is None else started
    return Tokens(300, clock or Clock(), lambda pid: known.get(pid, 0), lambda pid: lives)


def test_round_trip() -> None:
    issuer = tokens()
    token = issuer.issue(CALLER)
    assert issuer.verify(token) == CALLER
    assert issuer.verify(token) == CALLER  # remembered


def test_who_was_in_the_former_admin_group_is_no_admin_by_an_old_token() -> None:
    issuer = tokens()
    admin, root = replace(CALLER, admin=True), replace(CALLER, uid=0, admin=True)
    before = [issuer.issue(admin), issuer.issue(root)]
    assert [issuer.verify(token).admin for token in before] == [True, True]
    issuer.forget_admins()
    assert [issuer.verify(token).admin for token in before] == [False, True]
    assert issuer.verify(issuer.issue(admin)).admin


def test_tokens_of_those_who_may_not_connect_any_more_end() -> None:
    issuer = tokens()
    many = tuple(range(10_000, 10_300))
    members = [replace(CALLER, gid=7), replace(CALLER, groups=(6, 7)), replace(CALLER, uid=0)]
    others = [CALLER, replace(CALLER, groups=(6,)), replace(CALLER, groups=(*many, 7))]  # more than a token carries
    before, ended = [[issuer.issue(caller) for caller in callers] for callers in (members, others)]
    assert [issuer.verify(token) for token in before] == members
    assert issuer.verify(ended[0]) == CALLER
    issuer.keep_members(7)
    assert [issuer.verify(token) for token in before] == members
    for token in ended:
        with pytest.raises(Unidentified, match="socket_group"):
            issuer.verify(token)
    # AND a new one of a member holds, however many groups there are
    assert 7 in issuer.verify(issuer.issue(others[2])).groups
    issuer.keep_members(None)
    assert issuer.verify(ended[0]) == CALLER


def test_expires() -> None:
    clock = Clock()
    issuer = tokens(clock=clock)
    token = issuer.issue(CALLER)
    clock.now += 299
    issuer.verify(token)
    clock.now += 1
    with pytest.raises(Unidentified, match="has expired"):
        issuer.verify(token)


@pytest.mark.parametrize("started", [{}, {4711: 100}])
def test_ends_with_its_process(started: dict[int, int]) -> None:
    """Also when the pid has been used again since."""
    now = {4711: 99}
    issuer = tokens(now)
    token = issuer.issue(CALLER)
    issuer.verify(token)
    now.clear()
    now.update(started)
    for _ in range(2):
        with pytest.raises(Unidentified, match="has ended"):
            issuer.verify(token)


@pytest.mark.parametrize(
    ("given", "now", "says"),
    [(99, 0, "does not know any more whether"), (0, 99, "did not answer when it was given"), (99, 100, "has ended")],
)
def test_a_process_that_lives_is_not_said_to_have_ended(given: int, now: int, says: str) -> None:
    known = {4711: given}
    issuer = tokens(known, lives=True)
    token = issuer.issue(replace(CALLER, start_ticks=given))
    known[4711] = now
    with pytest.raises(Unidentified, match=says):
        issuer.verify(token)


def test_process_that_cannot_be_seen_is_trusted_until_expiry() -> None:
    issuer = tokens({})
    hidden = Caller(uid=51000, gid=100, user="ada", admin=False, pid=0)
    assert issuer.verify(issuer.issue(hidden)) == hidden


def test_another_daemons_token() -> None:
    with pytest.raises(Unidentified, match="not issued by this profd"):
        tokens().verify(tokens().issue(CALLER))


def test_changed_payload() -> None:
    issuer = tokens()
    body, _, signature = issuer.issue(CALLER).partition(".")
    payload = json.loads(base64.urlsafe_b64decode(body))
    payload["admin"] = True
    forged = base64.urlsafe_b64encode(json.dumps(payload).encode()).decode()
    with pytest.raises(Unidentified):
        issuer.verify(f"{forged}.{signature}")


@given(st.text(max_size=200))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(Unidentified):
        tokens().verify(text)


@given(st.integers(0, 400), st.integers(0, 255))
def test_any_changed_byte_is_refused(at: int, byte: int) -> None:
    issuer = tokens()
    token = issuer.issue(CALLER)
    at %= len(token)
    changed = token[:at] + chr(byte) + token[at + 1 :]
    if changed == token:
        return
    with pytest.raises(Unidentified):
        issuer.verify(changed)


def test_oversized() -> None:
    with pytest.raises(Unidentified, match="malformed"):
        tokens().verify("a" * TOKEN_BYTES_MAX + ".b")


def test_many_groups_still_fit() -> None:
    issuer = tokens()
    crowd = Caller(uid=1, gid=1, user="x", admin=False, pid=4711, groups=tuple(range(60_000)), start_ticks=99)
    token = issuer.issue(crowd)
    assert len(token) < TOKEN_BYTES_MAX
    assert issuer.verify(token).uid == 1

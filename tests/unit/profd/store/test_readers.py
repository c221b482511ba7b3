"""Names of readers, where the host's directory does not say who they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from profd.errors import BadInput, Exhausted
from profd.kernel import names
from profd.store import access
from profd.store.access import readers_of
from profd.store.catalog import EVERYBODY_UID


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gate = threading.Event()

    def ask(name: str) -> int:
        gate.wait()
        raise KeyError(name)

    monkeypatch.setattr(names, "_uids", names.Directory[str, int](ask))
    monkeypatch.setattr(access, "NAMES_SHARE_SECONDS", 0.05)
    yield
    gate.set()


@pytest.mark.usefixtures("silent")
def test_a_directory_that_does_not_answer_is_given_up() -> None:
    with pytest.raises(Exhausted, match="does not say who 'ann' is"):
        readers_of(["ann", "bob"])


@pytest.mark.usefixtures("silent")
def test_uids_are_taken_without_the_directory() -> None:
    assert readers_of(["1001", "*"]) == {"1001": 1001, "*": EVERYBODY_UID}


def test_who_is_unknown_is_no_reader() -> None:
    with pytest.raises(BadInput, match="no user 'nobody at all'"):
        readers_of(["nobody at all"])


@pytest.mark.parametrize("name", ["007", "0" * 249 + "7", "00", "+7", " 7", "\u0667", "4294967295", "1" * 256])
def test_a_uid_is_written_in_one_way(name: str) -> None:
    with pytest.raises(BadInput, match="There is no user"):
        readers_of([name])
    assert readers_of(["0", "7"]) == {"0": 0, "7": 7}

"""Text that UTF-8 and terminals can take."""

from __future__ import annotations

import pytest
from profd.model.text import encodable, printable_text


@pytest.mark.parametrize(
    ("given", "becomes"),
    [("", ""), ("a b\n", "a b\n"), ("häuser 家 🏠", "häuser 家 🏠"), ("a\ud800b\udfff", "a?b?")],
)
def test_lone_surrogates_alone_are_replaced(given: str, becomes: str) -> None:
    assert encodable(given) == becomes
    encodable(given).encode()


@pytest.mark.parametrize(
    ("given", "becomes"), [("ab", "ab"), ("abcdef", "abcd"), ("\x1b[2J", "\ufffd[2J"), ("a\ud800\n", "a?\ufffd")]
)
def test_nothing_plays_with_a_terminal(given: str, becomes: str) -> None:
    assert printable_text(given, 4) == becomes

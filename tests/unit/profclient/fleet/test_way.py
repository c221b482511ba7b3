"""Commands that carry relays."""

import sys

import pytest
from profclient.errors import UsageError
from profclient.fleet.way import Way


def test_the_words_of_a_command():
    way = Way(("n1",), "ssh -l 'a b' {host}.example.org")
    relay = [sys.executable, "-P", "-m", "profclient.relay"]
    assert way.command("n1") == ["ssh", "-l", "a b", "n1.example.org", *relay]
    assert Way(("n1",), "x {host}", "/opt/python").command("n1")[2:] == ["/opt/python", *relay[1:]]


@pytest.mark.parametrize(("via", "why"), [("ssh node1", "{host}"), ("ssh '{host}", "cannot be read"), ("", "{host}")])
def test_what_reaches_no_host(via, why):
    with pytest.raises(UsageError, match=why):
        Way(("n1",), via)

"""Host lists as Slurm and ClusterShell write them, and those that nobody should expand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profclient.errors import UsageError
from profclient.fleet.hostlist import HOSTS_MAX, hosts, numbers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node1", ["node1"]),
        ("node[001-003]", ["node001", "node002", "node003"]),
        ("node[1-3,7,09-10]", ["node1", "node2", "node3", "node7", "node09", "node10"]),
        ("node[0-9/4],login", ["node0", "node4", "node8", "login"]),
        ("rack[1-2]n[1-2]", ["rack1n1", "rack1n2", "rack2n1", "rack2n2"]),
        ("n[1-2].example.org a_b", ["n1.example.org", "n2.example.org", "a_b"]),
        ("n[1-5],!n[2-4]", ["n1", "n5"]),
        ("!n2,n[1-2],n1", ["n1"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
    ],
)
def test_lists(text, expected):
    assert hosts(text) == expected


def test_several_options_are_one_list():
    assert hosts(("n1", "n[2-3]")) == ["n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no host"),
        ("n1,!n1", "no host"),
        ("n[1-2", "bracket"),
        ("n1]", "bracket"),
        ("n[[1]]", "bracket"),
        ("n[]", "no number"),
        ("n[a-b]", "no number"),
        ("n[3-1]", "empty"),
        ("n[1-3/0]", "empty"),
        ("n[01-1]", "digits"),
        ("-oProxyCommand=x", "no name"),
        ("!-x,n1", "no name"),
        ("n1;reboot", "no name"),
        ("$(reboot)", "no name"),
        ("n1/../..", "no name"),
        ("n\x00", "no name"),
        ("nöde", "no name"),
        (".hidden", "no name"),
        ("n[٣]", "no number"),
        ("n[1-999999999]", "more than"),
        (f"n[1-{HOSTS_MAX + 1}]", "more than"),
        ("[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]", "more than"),
        ("n,[" * 30_000, "longer"),
        ("x" * 300, "no name"),
    ],
)
def test_what_is_none(text, why):
    with pytest.raises(UsageError, match=why):
        hosts(text)


@given(st.text("n1-0/[],! x", max_size=30))
def test_property_a_list_is_names_or_an_error(text):
    try:
        found = hosts(text)
    except UsageError:
        return
    assert found
    assert not any(set(host) & set("[],! /") or host.startswith("-") for host in found)


def test_ranks():
    assert numbers("0,8-11,8") == [0, 8, 9, 10, 11]
    for wrong in ("", "a", "1-", "-1", "1,,2", "0-999999"):
        with pytest.raises(UsageError):
            numbers(wrong)

"""Commands that carry relays."""

import sys

import pytest
from profclient.errors import UsageError
from profclient.fleet.way import Way, each, reachable


def test_the_words_of_a_command():
    way = Way(("n1",), "ssh -l 'a b' {host}.example.org")
    relay = [sys.executable, "-P", "-m", "profclient.relay"]
    assert way.command("n1") == ["ssh", "-l", "a b", "n1.example.org", *relay]
    assert Way(("n1",), "x {host}", "/opt/python").command("n1")[2:] == ["/opt/python", *relay[1:]]


def test_one_command_for_several_hosts():
    way = Way(("n1", "n2", "n3"), "step {hosts} -n {count}", "py", others=(("step -x {hosts} -n {count}", ("n3",)),))
    relay = ["py", "-P", "-m", "profclient.relay", "--shared", "SLURMD_NODENAME"]
    assert way.command("n1", "n2") == ["step", "n1,n2", "-n", "2", *relay]
    assert way.command("n3") == ["step", "-x", "n3", "-n", "1", *relay]
    assert (way.to(("n1",)).others, way.to(("n3",)).others) == ((), way.others)


async def test_hosts_that_are_known_to_be_out_of_reach():
    way = Way(("n1",), "/no/such/command {host}", absent={"n1": "it has gone"})

    async def nothing(_):
        raise AssertionError

    assert {name: str(error) for name, error in (await each(way, nothing)).items()} == {"n1": "it has gone"}


@pytest.mark.parametrize(("via", "why"), [("ssh node1", "{host}"), ("ssh '{host}", "cannot be read"), ("", "{host}")])
def test_what_reaches_no_host(via, why):
    with pytest.raises(UsageError, match=why):
        Way(("n1",), via)


async def test_many_hosts_get_the_open_files_that_they_need_or_a_sentence(monkeypatch):
    limits = [(256, 4000)]
    monkeypatch.setattr("resource.getrlimit", lambda _: limits[-1])
    monkeypatch.setattr("resource.setrlimit", lambda _, value: limits.append(value))
    async with reachable(Way(("n1",), "x {host}")):
        assert limits == [(256, 4000)]
    async with reachable(Way(tuple(f"n{at}" for at in range(400)), "x {host}")):
        assert limits[-1] == (128 + 8 * 400, 4000)
    with pytest.raises(UsageError, match="ulimit"):
        async with reachable(Way(tuple(f"n{at}" for at in range(500)), "x {host}")):
            pass

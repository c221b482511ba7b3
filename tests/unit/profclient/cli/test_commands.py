"""profctl's command line: help, bad usage, exit codes. No daemon is needed for any of it."""

import json
import re

import pytest
from profclient.cli.app import commands, main
from profclient.fleet import records
from profclient.fleet.records import Record
from profclient.fleet.way import Way


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    captured = capsys.readouterr()
    return int(left.value.code or 0), captured.out, captured.err


@pytest.mark.parametrize("name", commands())
def test_every_command_has_help(capsys, name):
    code, out, _ = run(capsys, name, "--help")
    assert code == 0
    assert out.startswith("Usage: profctl")


def test_the_main_help_lists_every_command(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert [name for name in commands() if f"\n  {name}" not in out] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["start"], "no process was named"),
        (["start", "--pid", "0", "-d", "1s"], "positive"),
        (["start", "--pid", "1", "-d", "10"], "500ms"),
        (["start", "--pid", "1", "-d", ""], "'' is not a duration"),  # of an empty variable, and no window without end
        (["export", "x", "--window", "", "-o", "x.json"], "1s..1.5s"),
        (["start", "--pid", "1", "-d", "1s", "-n", "3"], "not both"),
        (["start", "--pid", "x"], "not a valid integer"),
        (["start", "1234"], "Did you mean --pid 1234?"),
        (["where", "1234", "5"], "Did you mean --pid 1234?"),
        (["nonsense"], "No such command"),
        (["strat"], "did you mean start?"),
        (["share", "abc"], "--with USER"),
        (["import", "/nonexistent.json"], "cannot be read"),
        (["import", "/"], "is a directory"),
        (["import", "/dev/zero"], "is no file"),
        (["import", "\udc80.json"], "cannot be read"),
        (["ps", "--gpu", "99999999999999999999999"], "not in the range"),
        (["where", "--pid", "9223372036854775808"], "not in the range"),
        (["start", "--pid", "1", "-n", "2147483648"], "not in the range"),
        (["start", "--pid", "1", "-n", "1", "--at-step", "9223372036854775808"], "not in the range"),
        (["ps", "--rank", "0,2147483648"], "is no number"),
        (["ps", "--job", "a\udc80"], r"is no UTF-8: 'a\udc80'"),
        (["export", "--window", "5", "-o", "x.json"], "1s..1.5s"),
        (["store", "rebuild"], "--store DIR"),
        (["store", "upgrade"], "--store DIR"),
    ],
)
def test_usage_mistakes_say_what_to_do(capsys, arguments, words):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


def test_no_daemon_is_its_own_exit_code(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PROFD_ADDRESS", f"unix:{tmp_path}/none.sock")
    code, out, err = run(capsys, "ps")
    assert (code, out) == (7, "")
    assert "profd --user" in err
    code, _, err = run(capsys, "list", "--json")
    assert code == 7
    assert json.loads(err)["kind"] == "unreachable"


def test_a_socket_that_nobody_answers(capsys, monkeypatch, tmp_path):
    (tmp_path / "profd.sock").touch()
    monkeypatch.setenv("PROFD_ADDRESS", str(tmp_path / "profd.sock"))
    code, _, err = run(capsys, "ps")
    assert code == 7
    assert "no profd answers" in err


def test_completion(capsys):
    code, out, _ = run(capsys, "completion", "bash")
    assert code == 0
    assert "_PROFCTL_COMPLETE" in out


def test_captures_of_many_hosts_are_listed_without_a_daemon(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PROFD_ADDRESS", f"unix:{tmp_path}/none.sock")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert run(capsys, "captures")[0] == 7
    code, out, err = run(capsys, "captures", "--many-hosts")
    assert (code, out) == (0, "")
    assert "begun here" in err
    records.write(Record("f0123456789ab", Way(("n1", "n2"), "ssh {host}"), {"n3": "no route"}, "/traces"))
    code, out, _ = run(capsys, "captures", "--many-hosts")
    assert code == 0
    assert re.search(r"f0123456789ab .* 2  .* 1  .* n1, n2  .*/traces", out), out
    (told,) = json.loads(run(capsys, "captures", "--many-hosts", "--json")[1])
    assert told.pop("begun_ns") > 0
    assert told == {
        "capture": "f0123456789ab",
        "hosts": ["n1", "n2"],
        "left_out": {"n3": "no route"},
        "collected": "/traces",
    }

"""The Python side of the agent, without a daemon."""

from __future__ import annotations

import contextlib
import importlib.metadata
import socket
import subprocess
import sys

import pytest
from profclient import _recorder, agent


def run(code: str) -> str:
    environ = {"PROFD_ADDRESS": "unix:/nowhere/profd.sock"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_the_version_is_the_packages():
    assert importlib.metadata.version("profd") == agent.VERSION


def test_the_body_of_an_arm():
    body = "arena=1048576\noptions=ranges,stacks,torch:auto\nwindow=0\niterations=5\nlater=a=b\n"
    assert agent._parse(body) == {
        "arena": "1048576",
        "window": "0",
        "iterations": "5",
        "later": "a=b",
        "ranges": "",
        "stacks": "",
        "torch": "auto",
    }


@pytest.mark.parametrize(
    ("address", "expected"),
    [("unix:/run/a/profd.sock", b"/run/a/agent.sock"), ("/b/c.sock", b"/b/agent.sock"), ("d.sock", b"agent.sock")],
)
def test_the_agents_socket_lies_beside_the_daemons(address, expected):
    assert agent.sockets(address) == (expected,)


def test_importing_it_imports_nothing_that_takes_long():
    heavy = {"asyncio", "grpc", "google", "json", "socket", "pathlib", "typing", "dataclasses", "threading", "logging"}
    modules = run("import sys; before = set(sys.modules); import profclient.agent; print(*(set(sys.modules) - before))")
    assert heavy & set(modules.split()) == set()


def test_attach_twice_is_attach_once():
    code = "import os, profclient; a = profclient.attach(quiet=True); b = profclient.attach(quiet=True)\n"
    assert run(code + "print(a is b, a.state, len(os.listdir('/proc/self/task')))") == "True looking 2\n"


def test_it_says_what_it_looks_for():
    said = run(
        "import profclient, time\na = profclient.attach(quiet=True)\nwhile not a.why: time.sleep(0.01)\nprint(repr(a))"
    )
    assert said == "<profclient: looking: no profd answers at /nowhere/agent.sock (No such file or directory)>\n"


def test_a_daemon_whose_queue_is_full_is_not_called_absent(tmp_path):
    # GIVEN one that is there and accepts nobody now
    with contextlib.ExitStack() as held:
        listener = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listener.bind(str(tmp_path / "agent.sock"))
        listener.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                waits = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                waits.setblocking(False)
                waits.connect(str(tmp_path / "agent.sock"))
        said = run(
            f"import profclient, time\na = profclient.attach('unix:{tmp_path}/profd.sock', quiet=True)\n"
            "while not a.why: time.sleep(0.01)\nprint(a.why)"
        )
    assert said == f"profd's queue is full at {tmp_path}/agent.sock; trying again\n"


def test_before_attach_and_after_detach_it_is_off():
    code = "import profclient.agent as agent\nprint(agent._attachment)\nagent.attach(quiet=True)\nagent.detach()\n"
    assert run(code + "agent.detach()\nprint(agent._attachment)").splitlines() == [
        "<profclient: off: attach() was not called>",
        "<profclient: off: detach() was called>",
    ]


@pytest.mark.parametrize("key", ["events", "not_so reason", "a=b", "", "Ä", "A"])
def test_a_note_that_would_break_the_protocol_is_refused(key):
    with pytest.raises(ValueError, match="is no key for a note"):
        _recorder.agent_note(key, "1")


def test_only_the_protocols_reasons_end_a_recording():
    with pytest.raises(ValueError, match="no such reason: because"):
        agent.finish("because")

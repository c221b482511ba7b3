"""`with profclient.profile() as p: …` in real processes, with a daemon and without."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.daemon import running_daemon

PROGRAM = """
import json, os, profclient
def leaf(): return sum(range(200))
def work():
    for _ in range(50):
        with profclient.record_function("inner"): leaf()
def say(p):
    rows = {row["name"]: row["count"] for row in p.key_averages()}
    print(json.dumps({"rows": rows, "store": p.store, "lost": p.lost, "table": p.key_averages().table()}))
"""
RANGES = PROGRAM + "with profclient.profile() as p: work()\nsay(p)\n"


def run(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PROFD_ADDRESS": "unix:/nowhere/profd.sock", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def answer(done: subprocess.CompletedProcess[str]) -> dict:
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_without_a_daemon():
    said = answer(run(RANGES))
    assert (said["rows"], said["lost"]) == ({"inner": 50}, {})
    assert "inner" in said["table"]
    assert not os.path.exists(said["store"])  # gone with the process


def test_with_a_daemon():
    with running_daemon() as daemon:
        said = answer(run(RANGES, PROFD_ADDRESS=f"unix:{daemon.socket}"))
        assert (said["rows"], said["store"]) == ({"inner": 50}, "")
        again = run(RANGES + RANGES.replace(PROGRAM, ""), PROFD_ADDRESS=f"unix:{daemon.socket}")
        assert [json.loads(line)["rows"] for line in again.stdout.splitlines()] == [{"inner": 50}] * 2


STACKS = PROGRAM + "work()\nwith profclient.profile(stacks=True, c_calls=True) as p: work()\nsay(p)\n"
CALLED = {"inner": 50, "<string>(3): leaf": 50, "<string>(4): work": 1}
# The call that ends the block, which ends at once, and the one that began it, which returns into the block.
OURS = {"__exit__", "__enter__"}


def own_frames(rows):
    """Functions of Python that are not the program's, by name."""
    python = [name for name in rows if "): " in name and not name.startswith("<string>")]
    return {name.rpartition(" ")[2] for name in python if "threading.py" not in name}  # threads of ours may begin


def test_stacks():
    said = answer(run(STACKS))
    assert CALLED.items() <= said["rows"].items()
    assert own_frames(said["rows"]) <= OURS


def test_stacks_with_a_daemon():
    with running_daemon() as daemon:
        said = answer(run(STACKS, PROFD_ADDRESS=f"unix:{daemon.socket}"))
    assert CALLED.items() <= said["rows"].items()
    assert own_frames(said["rows"]) <= OURS


def test_more_than_the_arena_holds():
    code = (
        PROGRAM
        + """
with profclient.profile() as p:
    for _ in range(2_200_000):
        with profclient.record_function("many"): pass
print(json.dumps({"events": p.key_averages()[0]["count"] + sum(p.lost.values())}))
"""
    )
    assert answer(run(code)) == {"events": 2_200_000}


def test_an_error_of_the_block_is_the_blocks():
    done = run(PROGRAM + """
try:
    with profclient.profile() as p: work(); raise KeyError("of the block")
except KeyError as error: print(error)
print(len(p.key_averages()))
""")  # fmt: skip
    assert (done.stdout, done.stderr) == ("'of the block'\n1\n", "")


EMPTY = "import profclient\nwith profclient.profile() as p: pass\nprint(len(p.key_averages()), p.key_averages())"


def test_a_block_in_which_nothing_happens():
    done = run(EMPTY)
    assert (done.stdout, done.stderr) == ("0 nothing was recorded\n\n", "")
    with running_daemon() as daemon:
        done = run(EMPTY, PROFD_ADDRESS=f"unix:{daemon.socket}")
    assert (done.stdout, done.stderr) == ("0 nothing was recorded\n\n", "")


def test_with_a_daemon_in_a_program_that_ignores_ctrl_c():
    """As those do that a shell script starts in the background, and all that they start in turn."""
    ignoring = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    with running_daemon() as daemon:
        said = answer(run(ignoring + RANGES, PROFD_ADDRESS=f"unix:{daemon.socket}"))
    assert said["rows"] == {"inner": 50}


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("profclient.profile().key_averages()", "nothing has been recorded yet"),
        ("with profclient.profile(local=False): pass", "no profd records this process: "),
        ("with profclient.profile():\n  with profclient.profile(): pass", "this process cannot be recorded now: "),
        (
            "with profclient.profile() as p:\n  with profclient.record_function('x'): pass\n"
            "p.key_averages().table(sort_by='beauty')",
            "'beauty' is not one of",
        ),
        (
            "import importlib.util as u\nfind = u.find_spec\n"
            "u.find_spec = lambda name: None if name == 'profd' else find(name)\n"
            "with profclient.profile(): pass",
            "pip install '.[daemon]' in a clone",
        ),
    ],
    ids=["before", "no daemon", "twice", "a key", "no engine"],
)
def test_what_cannot_be_is_said(code, sentence):
    done = run(f"import profclient\n{code}")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("profclient.errors.") or "Error" in done.stderr
    assert sentence in done.stderr

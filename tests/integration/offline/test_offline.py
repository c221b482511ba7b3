"""`python -m profd.offline` as `profctl --store DIR` runs it: real processes, real jobs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from profclient.errors import BusyError
from profclient.offline import OfflineTraces
from profd.errors import InUse
from profd.store.lock import StoreLock
from profd.store.store import Store, StoreLimits

from tests.unit.profd.store.stored import add

LONG_SECONDS = 300.0  # one command of 0.9 s of CPU took 24 and 37 s at load 40 on two cores


def event(name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 2, "ts": ts, "dur": dur, "args": args}


TRACE = {"traceEvents": [event("outer", 10, 100), event("inner", 20, 30, Answer=42), event("inner", 60, 30)]}


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(TRACE))
    return path


@pytest.fixture
def ask(tmp_path):
    def run(verb: str, code: int = 0, **request: Any) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "profd.offline", verb, "--store", str(tmp_path / "state")],
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=LONG_SECONDS,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        )
        assert done.returncode == code, done.stderr.decode()
        if code:
            return json.loads(done.stderr.splitlines()[-1])
        return done.stdout if verb in ("tree", "export") else json.loads(done.stdout)

    return run


def test_a_trace_from_import_to_rm(ask, trace):
    stored = ask("import", path=str(trace))
    assert (stored["events"], stored["lost"], stored["title"]) == (3, [], "t.json")
    assert [one["id"] for one in ask("list")] == [stored["id"]]
    prefix = stored["id"][:10]
    assert ask("get", id=prefix) == stored
    rows = {row["name"]: row for row in ask("top", id=prefix, raw=True)}
    assert (rows["inner"]["count"], rows["outer"]["self_cpu_time_total_ns"]) == (2, 40_000)
    lines = [json.loads(line) for line in ask("tree").splitlines()]
    assert [(line["name"], line["parent"]) for line in lines] == [("outer", None), ("inner", 0), ("inner", 0)]
    assert ask("summary")["trace"]["id"] == stored["id"]
    exported = json.loads(ask("export", format="chrome"))
    assert {"name": "inner", "Answer": 42}.items() <= _flat(exported["traceEvents"])["inner", 20].items()
    assert ask("pin", id=prefix)["pinned"]
    assert not ask("unpin", id=prefix)["pinned"]
    assert ask("share", **{"id": prefix, "with": ["nobody"]})["shared_with"] == ["nobody"]
    assert ask("rebuild") == {"traces": 1, "damaged": []}
    assert ask("upgrade") == {"anew": [], "others": 1, "damaged": []}
    assert ask("get")["shared_with"] == ["nobody"]
    assert ask("rm", id=prefix) == {"id": stored["id"]}
    assert ask("list") == []


def _flat(events: list[dict[str, Any]]) -> dict[tuple[str, float], dict[str, Any]]:
    return {(one["name"], one["ts"]): {**one, **one.get("args", {})} for one in events if one["ph"] == "X"}


def test_a_rebuilt_store_answers_the_same(ask, trace, tmp_path):
    ask("import", path=str(trace))
    before = ask("top", raw=True), ask("list")
    for path in (tmp_path / "state").glob("catalog.sqlite*"):
        path.unlink()
    assert (ask("top", raw=True), ask("list")) == before


@pytest.mark.parametrize(
    ("verb", "request_", "code", "kind"),
    [
        ("get", {"id": "zzz"}, 3, "not_found"),
        ("get", {"id": 5}, 2, "usage"),
        ("list", {"limit": "x"}, 2, "usage"),
        ("top", {"raw": "yes"}, 2, "usage"),
        ("share", {"with": "bob"}, 2, "usage"),
        ("import", {"path": "/nonexistent"}, 2, "usage"),
        ("import", {"path": "/dev/zero"}, 2, "usage"),
        ("rm", {}, 2, "usage"),
    ],
)
def test_errors_are_one_line_of_json(ask, tmp_path, verb, request_, code, kind):
    Store(tmp_path / "state").close()
    error = ask(verb, code=code, **request_)
    assert error["kind"] == kind
    assert error["error"]


def test_garbage_is_not_stored(ask, tmp_path):
    path = tmp_path / "garbage.json"
    path.write_bytes(b"\x00\x01 no trace")
    assert ask("import", code=1, path=str(path))["kind"] == "failure"
    assert ask("list") == []
    assert not list((tmp_path / "state" / "traces").iterdir())


def test_no_store_is_not_found(ask):
    assert "no store" in ask("list", code=3)["error"]


def test_a_daemons_store_is_left_to_it(ask, tmp_path):
    store = Store(tmp_path / "state", StoreLimits(free_share_min=0.0))
    try:
        assert "leave out --store" in ask("list", code=1)["error"]
    finally:
        store.close()
    assert ask("list") == []


def test_readers_do_not_wait_for_each_other(ask, trace, tmp_path):
    """A reader whose output nobody takes holds no lock."""
    ask("import", path=str(trace))
    slow = subprocess.Popen(
        [sys.executable, "-m", "profd.offline", "tree", "--store", str(tmp_path / "state")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with slow:
        assert slow.stdin is not None
        slow.stdin.write(b"{}")
        slow.stdin.close()
        assert len(ask("list")) == 1
        assert slow.stdout is not None
        assert slow.stdout.read().count(b"\n") == 3


def test_an_offline_writer_is_waited_for_and_named(tmp_path):
    (tmp_path / "state").mkdir()
    lock = StoreLock(tmp_path / "state", "offline")
    with pytest.raises(InUse, match=r"in use \(pid \d+\)") as error:
        StoreLock(tmp_path / "state", "offline", wait_seconds=0.05)
    assert error.value.exit_code == BusyError.exit_code
    lock.release()
    StoreLock(Path(tmp_path / "state"), "offline").release()


@pytest.fixture
def capture(tmp_path):
    """A store with two ranks of one capture, and a trace of none."""
    store = Store(tmp_path / "state", StoreLimits(free_share_min=0.0))
    for rank in range(2):
        add(store, capture="c0123456789ab", rank=rank, source="sdk")
    add(store)
    store.close()
    return "c0123456789ab"


def test_a_capture_is_asked_without_a_daemon(ask, capture):
    answer = ask("top", capture=capture, by="rank")
    assert [one["rank"] for one in answer["traces"]] == [0, 1]
    assert {row["rank"] for row in answer["rows"]} == {0, 1}
    assert ask("steps", capture="c01")["n"] == 0
    assert ask("gpu", capture=capture)["capture"] == capture
    assert ask("diff", capture=capture, other=capture)["per"] == "trace"
    assert ask("sql", capture=capture, sql="select count(*) from events")["rows"] == [[100]]
    assert "cannot be asked of a capture" in ask("summary", 2, capture=capture)["error"]
    assert "for a capture, not for a trace" in ask("top", 2, id="1", by="rank")["error"]
    assert ask("top", 3, capture="c9")["kind"] == "not_found"


@pytest.fixture
def profctl(tmp_path):
    def run(*words: str, store: str = "state", code: int = 0) -> str:
        whole = [
            sys.executable,
            "-c",
            "from profclient.cli import main; main()",
            "--store",
            str(tmp_path / store),
            *words,
        ]
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        done = subprocess.run(whole, capture_output=True, text=True, timeout=LONG_SECONDS, env=environment)
        assert done.returncode == code, done.stderr
        clean = not code and ("--json" in words or words[0] == "files")
        return done.stdout if clean else done.stdout + done.stderr

    return run


def test_profctl_asks_a_capture_by_its_id(profctl, capture):
    assert "2 traces, ranks 0-1 on 1 host" in profctl("top", capture)
    assert "RANK" in profctl("top", "c01", "--by", "rank")
    assert json.loads(profctl("gpu", capture, "--json"))["capture"] == capture
    assert profctl("diff", capture, capture).count("2 traces") == 2
    assert "100" in profctl("sql", capture, "select count(*) from events")
    assert "none found" in profctl("steps", capture)
    shown = profctl("show", capture)
    assert f"{capture}: 2 traces, ranks 0-1 on 1 host" in shown
    assert [line.split()[0] for line in shown.splitlines()[1:]] == ["RANK", "0", "1"]
    assert [one["rank"] for one in json.loads(profctl("show", capture, "--json"))["traces"]] == [0, 1]


def test_an_exported_capture_answers_as_the_store(profctl, capture, tmp_path):
    said = profctl("export", capture, "-f", "parquet", "--to", str(tmp_path / "out"))
    assert f"capture={capture}" in said
    for question in (
        ["top", capture, "--by", "trace"],
        ["gpu", capture],
        ["sql", capture, "select sum(start_ns) from events"],
    ):
        assert profctl(*question, "--json", store="out") == profctl(*question, "--json")
    # Of either, two traces.
    assert sorted(path.name for path in tmp_path.glob("cache/profd/rollups/*/*")) == ["gpu"] * 4 + ["top"] * 4
    assert not [*tmp_path.glob("state/index/*/*")]
    files = profctl("files", "c01", "--check", store="out").splitlines()
    assert [Path(file).parent.parent.name for file in files] == ["rank=0", "rank=1"]
    assert len(profctl("files", capture).splitlines()) == 2  # of a store, too
    assert "no store" not in profctl("list", store="out")
    assert "only read" in profctl("rm", "1", store="out", code=2)
    # AND an engine reads it, as docs/store.md says
    text = (Path(__file__).parents[3] / "docs" / "store.md").read_text()
    (question,) = re.findall(r'duckdb -c "(select rank, .*)"\n', text)
    asked = duckdb.connect().execute(
        question.replace("DIR", str(tmp_path / "out")).replace("select rank,", "select rank, capture,")
    )
    assert {row[:2] for row in asked.fetchall()} == {(0, capture), (1, capture)}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["export", "c01", "-f", "parquet"], "--to DIR"),
        (["export", "c01", "--to", "out"], "-f parquet --to DIR"),
        (["export", "1", "-f", "parquet", "--to", "out"], "all traces of a capture"),
        (["export", "c01", "-f", "parquet", "--to", "out", "--step", "3"], "whole traces"),
        (["files", "c01", "--check"], "sums of their own"),
    ],
)
def test_what_does_not_go_together(profctl, capture, words, says):
    assert says in profctl(*words, code=2)


@pytest.mark.skipif(os.geteuid() != 0, reason="another uid takes root")
@pytest.mark.parametrize(
    "theirs", ["the directory", "a link in it", "nothing, but everybody may write there", "nothing, but a group may"]
)
def test_a_store_that_another_user_could_have_prepared_is_not_opened(ask, tmp_path, theirs):
    """WHEN somebody has led its `traces` into our home THEN nothing there is taken for a leftover and removed."""
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "traces").symlink_to(tmp_path / "home")
    if theirs == "the directory":
        os.chown(tmp_path / "state", 12345, 12345)
    elif theirs == "a link in it":
        os.lchown(tmp_path / "state" / "traces", 12345, 12345)
    else:
        os.chown(tmp_path / "state", 0, 12345)
        (tmp_path / "state").chmod(0o777 if "everybody" in theirs else 0o770)
    assert ask("list", code=4)["kind"] == "denied"
    assert (tmp_path / "home" / ".ssh").is_dir()


def test_nothing_is_imported_from_the_directory_that_it_is_run_in(tmp_path, monkeypatch):
    """Which may be another user's, and root may have gone there."""
    Store(tmp_path / "state").close()
    (tmp_path / "asyncio.py").write_text("raise SystemExit('code of whoever owns this directory')")
    monkeypatch.chdir(tmp_path)
    assert OfflineTraces(tmp_path / "state").newest(1) == []

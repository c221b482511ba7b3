"""`profctl import|list|show|top|tree|export|pin|share|rm`, with a daemon and on a store alone."""

import gzip
import json

import pytest

from tests.integration.cli.conftest import on_both

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cli")]

BASE = 1_700_000_000_000_000_000


def event(name, ts, dur, **more):
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": 7, "ts": ts, "dur": dur, **more}


TRACE = {
    "schemaVersion": 1,
    "baseTimeNanoseconds": BASE,
    "traceEvents": [
        event("outer", 100.5, 50, args={"External id": 1, "Input Dims": [[2, 3]], "own": "kept"}),
        event("inner\x1b[31m", 110.25, 20.125),
        event("cudaLaunchKernel", 112, 2, cat="cuda_runtime", args={"correlation": 9}),
        event("gemm", 140, 30, cat="kernel", pid=0, tid=3, args={"correlation": 9, "device": 0, "stream": 3}),
        {"ph": "s", "id": 1, "cat": "fwdbwd", "name": "fwdbwd", "pid": 7, "tid": 7, "ts": 100.5},
        {"ph": "f", "id": 1, "cat": "fwdbwd", "name": "fwdbwd", "pid": 7, "tid": 7, "ts": 110.25, "bp": "e"},
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "python"}},
        event("broken", float("nan"), 1),
    ],
    "traceName": "x.json",
}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("in") / "x.json.gz"
    path.write_bytes(gzip.compress(json.dumps(TRACE).encode()))
    return path


@pytest.fixture(scope="module")
def trace(profctl, file):
    done = profctl("import", str(file), "--json")
    assert done.code == 0, done.err
    assert set(done.json) == {"trace", "events", "lost"}
    assert done.json["events"] == 4
    assert done.json["lost"] == [{"stage": "decode", "reason": "bad_time", "count": 1}]
    return done.json["trace"]


@on_both
def test_list_and_show(profctl, trace):
    assert trace in {entry["id"] for entry in profctl("list", "--json").json}
    assert trace in profctl("list").out
    summary = profctl("show", trace[:10], "--json").json
    assert summary["trace"]["id"] == trace
    assert summary["trace"]["events"] == 4
    shown = profctl("show", trace).out
    assert "1 in decode (bad_time)" in shown
    assert "\x1b[31m" not in shown


def test_a_list_that_is_cut_says_so(profctl, trace, file):
    assert profctl("import", str(file)).code == 0
    cut = profctl("list", "--limit", "1")
    assert len(cut.out.splitlines()) == 2
    assert "more traces; --limit N" in cut.err
    everything = profctl("list", "--limit", "0", "--json")
    assert len(everything.json) == stored(profctl) >= 2
    assert "more" not in everything.err
    exact = profctl("list", "--limit", str(len(everything.json)))
    assert (len(exact.out.splitlines()) - 1, exact.err) == (len(everything.json), "")


@on_both
def test_top(profctl, trace):
    rows = {row["name"]: row for row in profctl("top", trace, "--raw", "--json").json}
    assert rows["outer"]["cpu_time_total_ns"] == 50_000
    assert rows["outer"]["self_cpu_time_total_ns"] == 50_000 - 20_125
    assert rows["gemm"]["self_device_time_total_ns"] == 30_000
    assert rows["gemm"]["device_type"] == "CUDA"
    shown = profctl("top", trace)
    assert "outer" in shown.out
    assert "\x1b" not in shown.out
    assert profctl("top", trace, "--sort-by", "nonsense").code == 2


@on_both
def test_tree(profctl, trace):
    lines = [json.loads(line) for line in profctl("tree", trace, "--json").out.splitlines()]
    fields = (
        "row parent depth name kind cat start_ns end_ns process thread device_type device stream correlation external"
    )
    assert all(set(line) == set(fields.split()) for line in lines)
    by_name = {line["name"]: line for line in lines}
    assert [line["row"] for line in lines] == [0, 1, 2, 3]
    assert by_name["outer"]["parent"] is None
    assert by_name["outer"]["start_ns"] == BASE + 100_500
    launch = by_name["cudaLaunchKernel"]
    assert (launch["kind"], launch["depth"]) == ("runtime", 2)
    assert by_name["gemm"]["parent"] == launch["row"]
    shown = profctl("tree", trace)
    assert "process 7, thread 7\n" in shown.out
    assert "outer" in shown.out
    assert shown.err == ""


def test_a_tree_that_is_cut_says_how_much_is_left_out(profctl, tmp_path):
    path = tmp_path / "long.json"
    path.write_text(json.dumps({**TRACE, "traceEvents": [event("op", at, 1) for at in range(2010)]}))
    long = profctl("import", str(path), "--json").json["trace"]
    cut = profctl("tree", long)
    assert (len(cut.out.splitlines()), cut.err.split(";")[0]) == (2001, "… 10 more")
    assert "cut at 2,000 calls" in profctl("tree", long, "--depth", "1").err


@on_both
def test_export_gives_back_what_came_in(profctl, trace, tmp_path):
    out = tmp_path / "out.json"
    assert profctl("export", trace, "-f", "chrome", "-o", str(out)).code == 0
    exported = json.loads(out.read_text())
    events = {entry["name"]: entry for entry in exported["traceEvents"] if entry["ph"] == "X"}
    assert events["outer"]["args"] == {"External id": 1, "Input Dims": [[2, 3]], "own": "kept"}
    assert {entry["ph"] for entry in exported["traceEvents"]} == {"X", "M", "s", "f"}
    base = exported["baseTimeNanoseconds"]
    assert base + round(events["outer"]["ts"] * 1000) == BASE + 100_500
    only = profctl("export", trace, "-f", "chrome", "--window", "30us..", "-o", str(out))
    assert only.code == 0, only.err
    names = {entry["name"] for entry in json.loads(out.read_text())["traceEvents"] if entry["ph"] == "X"}
    assert names == {"outer", "gemm"}
    folded = profctl("export", trace, "-f", "folded").out
    assert "outer;inner" in folded


@on_both
def test_pin_share_and_delete(profctl, file):
    trace = profctl("import", str(file), "--json").json["trace"]
    assert profctl("pin", trace).code == 0
    (entry,) = [entry for entry in profctl("list", "--json").json if entry["id"] == trace]
    assert entry["pinned"]
    assert profctl("share", trace, "--with", "*").code == 0
    assert profctl("unpin", trace).code == 0
    assert profctl("rm", trace).code == 0
    assert profctl("show", trace).code == 3
    assert profctl("rm", trace).code == 3


def stored(profctl):
    """How many traces there are; a directory where nothing was imported yet is no store."""
    done = profctl("list", "--json")
    return len(done.json) if done.code == 0 else 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"not a trace at all", "JSON"),
        (b"\x1f\x8b\x08\x00garbage", "gzip"),
        (b'{"traceEvents": [' + b"[" * 1_000_000, "byte"),
    ],
    ids=["empty", "text", "gzip", "deep"],  # pytest puts the name into the environment, which has its limit
)
def test_what_is_no_trace_is_a_clear_error(profctl, tmp_path, content, words):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    before = stored(profctl)
    done = profctl("import", str(path))
    assert done.code == 1
    assert str(path) in done.err
    assert words.lower() in done.err.lower()
    assert stored(profctl) == before


def test_a_truncated_trace_keeps_what_is_readable(profctl, tmp_path):
    path = tmp_path / "half.json"
    path.write_text(json.dumps(TRACE)[:420])
    done = profctl("import", str(path), "--json")
    assert done.code in (0, 6), done.err
    assert done.json["events"] >= 1
    assert any("end" in text for text in profctl("show", done.json["trace"], "--json").json["warnings"])

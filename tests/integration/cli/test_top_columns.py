"""`profctl top` by module, with backward times and memory, with a daemon and on a store alone."""

import json

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cli")]

BASE = 1_700_000_000_000_000_000


def event(name, ts, dur, cat="cpu_op", tid=7, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": args}


def memory(ts, size):
    args = {"Total Allocated": 10_000 + size, "Bytes": size, "Device Type": 0, "Device Id": -1, "Addr": 1}
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "pid": 7,
        "tid": 7,
        "ts": ts,
        "args": args,
    }


TRAINING = {
    "schemaVersion": 1,
    "baseTimeNanoseconds": BASE,
    "traceEvents": [
        event("nn.Module: Net_0", 0, 100, "python_function"),
        event("aten::mm", 10, 50, **{"Sequence number": 4, "Fwd thread id": 0}),
        memory(20, 4096),
        event("aten::add", 200, 20, **{"Sequence number": 5, "Fwd thread id": 0}),
        event("MmBackward0", 300, 80, tid=8, **{"Sequence number": 4, "Fwd thread id": 1}),
        {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 7, "tid": 7, "ts": 10},
        {"ph": "f", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 7, "tid": 8, "ts": 300, "bp": "e"},
    ],
}


@pytest.fixture(scope="module")
def trace(profctl, tmp_path_factory):
    """The id of the training trace."""
    path = tmp_path_factory.mktemp("raw") / "training.json"
    path.write_text(json.dumps(TRAINING))
    return profctl("import", str(path), "--json").json["trace"]


def test_top_by_module(profctl, trace):
    rows = profctl("top", trace, "--group-by", "module", "--with-backward", "--json").json
    found = {row["name"]: (row["module"], row["backward_time_total_ns"]) for row in rows}
    assert found == {
        "nn.Module: Net_0": ("Net_0", 80_000),
        "aten::mm": ("Net_0", 80_000),
        "aten::add": ("", 0),
        "MmBackward0": ("Net_0", 0),
    }
    shown = profctl("top", trace, "--group-by", "module", "--with-backward")
    assert "MODULE" in shown.out
    assert "BACKWARD" in shown.out
    assert "4.1 kB" in shown.out
    assert profctl("top", trace, "--group-by", "nonsense").code == 2


def test_top_without_them(profctl, trace):
    rows = profctl("top", trace, "--sort-by", "cpu_memory_usage", "--json").json
    assert {(row["module"], row["backward_time_total_ns"]) for row in rows} == {(None, None)}
    assert {row["name"]: row["cpu_memory_usage"] for row in rows} == {
        "nn.Module: Net_0": 4096,
        "aten::mm": 4096,
        "aten::add": 0,
        "MmBackward0": 0,
    }
    by_backward = profctl("top", trace, "--sort-by", "backward_time_total", "--limit", "1", "--json").json
    assert by_backward[0]["backward_time_total_ns"] == 80_000


def test_memory_in_the_summary(profctl, trace):
    (host,) = profctl("show", trace, "--json").json["memory"]
    assert (host["device_type"], host["allocations"], host["peak_bytes"]) == ("CPU", 1, 14_096)
    assert "peak 14.1 kB" in profctl("show", trace).out


def test_forward_ops_in_sql(profctl, trace):
    question = (
        "select b.name, f.name from backward "
        'join events b on b."row" = backward."row" join events f on f."row" = forward_row'
    )
    assert profctl("sql", trace, question, "--json").json["rows"] == [["MmBackward0", "aten::mm"]]

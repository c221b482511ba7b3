"""`profctl steps|sql|diff`, with a daemon (its confined worker) and on a store alone."""

import json
import re

import pytest

from tests.integration.cli.conftest import on_both

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cli")]

BASE = 1_700_000_000_000_000_000


def event(name, ts, dur, cat="cpu_op", tid=7, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": args}


def training(multiply_us):
    """Four steps of 1000 us, in each a matrix product of so many us and a kernel."""
    events = []
    for step in range(4):
        at = step * 1000
        events += [
            event(f"ProfilerStep#{step}", at, 1000, "user_annotation"),
            event("aten::mm", at + 10, multiply_us),
            event("cudaLaunchKernel", at + 20, 10, "cuda_runtime", correlation=step),
            event("gemm\x1b[31m", at + 100, 300, "kernel", 20, correlation=step, device=0, stream=7),
        ]
    return {"schemaVersion": 1, "baseTimeNanoseconds": BASE, "traceEvents": events}


@pytest.fixture(scope="module")
def traces(profctl, tmp_path_factory):
    """(before, after): the product takes 200 us, then 300 us."""
    folder = tmp_path_factory.mktemp("in")
    found = []
    for name, multiply_us in (("before", 200), ("after", 300)):
        path = folder / f"{name}.json"
        path.write_text(json.dumps(training(multiply_us)))
        done = profctl("import", str(path), "--json")
        assert done.code == 0, done.err
        found.append(done.json["trace"])
    return found


def test_reading_makes_no_store(host, tmp_path):
    for command in (("list",), ("top",), ("rm", "x")):
        done = host.profctl("--store", str(tmp_path / "none"), *command)
        assert (done.code, done.out) == (3, "")
        assert f"There is no store in {tmp_path / 'none'}" in done.err
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("")
    done = host.profctl("--store", str(tmp_path / "file"), "list")
    assert done.code == 3


def test_an_unknown_trace_is_not_looked_for_among_captures(host):
    shown = host.profctl("show", "1zzzz")
    assert shown.code == 3
    assert "You have no trace '1zzzz'; `profctl list`" in shown.err


def test_stop_without_a_capture_says_so(host):
    stopped = host.profctl("stop")
    assert stopped.code == 3
    assert "nothing to stop" in stopped.err or "you have no captures yet" in stopped.err


@on_both
def test_steps(profctl, traces):
    answer = profctl("steps", traces[0], "--json").json
    assert (answer["n"], answer["from"], answer["message"]) == (4, "ProfilerStep", None)
    assert answer["steps"][1] == {
        "number": 1,
        "name": "ProfilerStep#1",
        "start_ns": BASE + 1_000_000,
        "duration_ns": 1_000_000,
        "device_busy_ns": 300_000,
        "device_idle_ns": 700_000,
        "launches": 1,
        "launch_delay_p50_ns": 80_000,
        "launch_delay_max_ns": 80_000,
        "host_share": 0.2,
        "ops": None,
        "outlier": False,
    }
    shown = profctl("steps", traces[0])
    assert [line.split()[0] for line in shown.out.splitlines()] == ["STEP", "0", "1", "2", "3"]
    assert "20%" in shown.out
    assert profctl("steps", "nonsense", "--json").code == 3


def test_steps_that_are_slow(profctl, tmp_path):
    events = training(200)["traceEvents"]
    events += [event(f"ProfilerStep#{step}", step * 1000, 1000, "user_annotation") for step in range(4, 20)]
    events += [event("ProfilerStep#207", 20_000, 9000, "user_annotation"), event("aten::slow", 21_000, 7000)]
    path = tmp_path / "slow.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": BASE, "traceEvents": events}))
    trace = profctl("import", str(path), "--json").json["trace"]
    answer = profctl("steps", trace, "--json", "--sort", "duration", "--limit", "2").json
    assert [(step["number"], step["outlier"]) for step in answer["steps"]] == [(207, True), (0, False)]
    assert answer["outliers"] == {"n": 1, "above_ns": 1_050_000, "median_ns": 1_000_000, "deviation_ns": 0}
    shown = profctl("steps", trace)
    assert "9.0x" in shown.out
    assert re.fullmatch(rf"next: profctl (--store \S+ )?top {trace} --step 207", shown.err.splitlines()[-1])
    assert "slow steps    1 of more than 1.05 ms: 207" in profctl("show", trace).out
    rows = profctl("top", trace, "--step", "207", "--json").json
    assert [row["name"] for row in rows] == ["aten::slow", "ProfilerStep*"]


def test_explain(profctl, tmp_path):
    """A loader takes 400 of 1000 us."""
    document = training(200)
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    document["traceEvents"] += [event(loader, step * 1000 + 500, 400, "user_annotation") for step in range(4)]
    path = tmp_path / "loading.json"
    path.write_text(json.dumps(document))
    trace = profctl("import", str(path), "--json").json["trace"]
    answer = profctl("explain", trace, "--json").json
    assert [(one["id"], one["bound_ns"]) for one in answer["findings"][:1]] == [("data-loading", 3 * 400_000)]
    text = profctl("explain", trace)
    assert text.code == 0
    assert "1  data-loading  (at most 40 % less time)" in text.out
    part = profctl("explain", trace, "--step", "2..3")
    assert "in steps 2..3 (2.00 ms)\n" in part.out
    assert "no step 9" in profctl("explain", trace, "--step", "9").err
    assert profctl("explain", trace, "--fail-on", "casts").code == 0
    assert profctl("explain", trace, "--fail-on", "casts", "--fail-on", "data-loading").code == 1
    refused = profctl("explain", trace, "--fail-on", "everything")
    assert refused.code == 2
    assert "there is no finding 'everything'; there are: data-loading," in refused.err


@on_both
def test_critical(profctl, tmp_path):
    """A loader takes 400 of 1000 us, on a host without devices."""
    document = training(200)
    document["traceEvents"] += [event("load\x1b[2J", step * 1000 + 500, 400, "user_annotation") for step in range(4)]
    path = tmp_path / "loading.json"
    path.write_text(json.dumps(document))
    trace = profctl("import", str(path), "--json").json["trace"]
    answer = profctl("critical", trace, "--json").json
    named = {row["name"]: (row["path_ns"], row["without_ns"]) for row in answer["rows"]}
    assert named["load\x1b[2J"] == (3 * 400_000, 3 * 600_000)
    text = profctl("critical", trace, "--limit", "1")
    assert "What the end of steps 1..3 waited for (3.00 ms):\n  host 100 %\n" in text.out
    assert "40 %" in text.out
    assert "\x1b" not in text.out
    assert "left out; --limit shows more" in text.err
    path.write_text(json.dumps({"traceEvents": [event("aten::mm", 0, 5)]}))
    few = profctl("critical", profctl("import", str(path), "--json").json["trace"])
    assert (few.code, few.out) == (0, "")
    assert "Steps: none found" in few.err


@on_both
def test_explain_has_too_little_to_look_at(profctl, tmp_path):
    path = tmp_path / "empty.json"
    path.write_text(json.dumps({"traceEvents": [event("aten::mm", 0, 5)]}))
    trace = profctl("import", str(path), "--json").json["trace"]
    done = profctl("explain", trace, "--fail-on", "data-loading")
    assert done.code == 0
    assert done.out.startswith("There is too little to look at. Steps: none found")
    assert profctl("explain", trace, "--json").json["status"] == "not enough data"


def test_of_many_steps_the_first_are_printed(profctl, tmp_path):
    events = [event(f"ProfilerStep#{step}", step * 1000, 1000, "user_annotation") for step in range(1103)]
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"baseTimeNanoseconds": BASE, "traceEvents": events}))
    trace = profctl("import", str(path), "--json").json["trace"]
    shown = profctl("steps", trace)
    assert [line.split()[0] for line in shown.out.splitlines()] == ["STEP", *map(str, range(100))]
    assert "1,003 more: --limit 0 prints all" in shown.err
    assert len(profctl("steps", trace, "--json").json["steps"]) == 1103
    everything = profctl("steps", trace, "--limit", "0")
    assert len(everything.out.splitlines()) == 1104
    assert "more:" not in everything.err


def test_parts_of_a_trace(profctl, traces):
    rows = {row["name"]: row for row in profctl("top", traces[0], "--step", "1-2", "--json").json}
    assert {name: row["count"] for name, row in rows.items()} == dict.fromkeys(rows, 2)
    assert rows["aten::mm"]["device_time_total_ns"] == 600_000
    rows = {row["name"]: row for row in profctl("top", traces[0], "--window", "0s..100us", "--json").json}
    assert (rows["aten::mm"]["cpu_time_total_ns"], rows["ProfilerStep*"]["self_cpu_time_total_ns"]) == (90_000, 10_000)
    lines = profctl("tree", traces[0], "--step", "3", "--thread", "7", "--json").out.splitlines()
    assert [json.loads(line)["name"] for line in lines][:3] == ["ProfilerStep#3", "aten::mm", "cudaLaunchKernel"]
    for options, says in {
        ("--step", "9999"): "no step 9999; its steps are 0..3",
        ("--window", "1h.."): "the trace lasts",
        ("--thread", "\x1b[31m"): "its threads are: 7",
        ("--step", "1", "--window", "1s..2s"): "only one of them",
    }.items():
        for command in (("top",), ("tree",), ("tree", "--merged")):
            refused = profctl(command[0], traces[0], *command[1:], *options)
            assert refused.code == 2
            assert says in refused.err
            assert "\x1b" not in refused.err


def test_the_merged_tree(profctl, traces):
    answer = profctl("tree", traces[0], "--merged", "--json").json
    assert (answer["calls"], answer["paths"], answer["left_out"]) == (16, 5, 0)
    assert [(node["depth"], node["name"], node["count"]) for node in answer["nodes"]] == [
        (0, "ProfilerStep*", 4),
        (1, "aten::mm", 4),
        (2, "cudaLaunchKernel", 4),
        (3, "gemm\x1b[31m", 3),  # 0 is no correlation id
        (0, "gemm\x1b[31m", 1),
    ]
    root = answer["nodes"][0]
    assert (root["total_ns"], root["self_ns"], root["device_total_ns"]) == (4_000_000, 3_200_000, 900_000)
    assert root["share"] == 1.0
    shown = profctl("tree", traces[0], "--merged", "--limit", "2")
    assert [line[55:].split()[0] for line in shown.out.splitlines()] == ["NAME", "ProfilerStep*", "aten::mm"]
    assert "3 paths with less time left out" in shown.err
    assert "\x1b" not in profctl("tree", traces[0], "--merged").out
    for options in (("--merged", "--depth", "2"), ("--merged", "--row", "0"), ("--limit", "2")):
        assert profctl("tree", traces[0], *options).code == 2


@on_both
def test_trees_and_parts_are_had_of_both(profctl, traces):
    assert profctl("flame", traces[0], "--json").json == profctl("tree", traces[0], "--merged", "--json").json
    refused = profctl("top", traces[0], "--step", "9999")
    assert (refused.code, "no step 9999; its steps are 0..3" in refused.err) == (2, True)


def first_box(text):
    """Of a flame graph, below the words about it."""
    return next(line for line in text.splitlines() if line.startswith("▏"))


def test_a_flame_graph(profctl, traces, tmp_path):
    shown = profctl("flame", traces[0])
    assert ": 4.00 ms. " in shown.out.splitlines()[0]
    assert first_box(shown.out).startswith("▏ProfilerStep* 100%")
    drawn = tmp_path / "flame.svg"
    said = profctl("flame", traces[0], "--by", "device", "--step", "1", "-o", str(drawn))
    assert f"{drawn}: " in said.err
    assert "--step 1" in drawn.read_text()
    assert ">gemm" in drawn.read_text()
    assert "\x1b" not in drawn.read_text() + shown.out
    refused = profctl("flame", traces[0], "-o", str(tmp_path / "flame.png"))
    assert (refused.code, "name the file with .svg" in refused.err) == (2, True)


def test_a_flame_graph_of_memory_at_its_peak(profctl, traces, tmp_path):
    said = {"Device Id": -1, "Device Type": 0, "Addr": 7, "Bytes": 4000, "Total Allocated": 9000}
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mul", "pid": 1, "tid": 2, "ts": 10, "dur": 90},
        {
            "ph": "i",
            "s": "t",
            "cat": "cpu_instant_event",
            "name": "[memory]",
            "pid": 1,
            "tid": 2,
            "ts": 30,
            "args": said,
        },
    ]
    events += [{**events[1], "ts": 60, "args": {**said, "Device Type": 1, "Device Id": 0, "Bytes": 300}}]
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"traceEvents": events}))
    trace = profctl("import", str(path), "--json").json["trace"]
    shown = profctl("flame", trace, "--of", "memory")
    told = " ".join(shown.out.split())
    assert "memory at its peak: 300 B in 1 block on CUDA 0, 50.00 us after the first event. A box is" in told
    assert "what is older is in none. The allocator counted 9.0 kB then." in told
    assert first_box(shown.out).startswith("▏aten::mul 300 B")
    assert "The peaks of other devices: CPU 4.0 kB; --device draws one." in shown.err
    drawn = tmp_path / "flame.svg"
    assert profctl("flame", trace, "--of", "memory", "--device", "cpu", "-o", str(drawn)).code == 0
    assert "<title>all\n4.0 kB</title>" in drawn.read_text()
    assert profctl("flame", trace, "--of", "memory", "--json").json["peak_bytes"] == 300
    for words, why in (
        (("--of", "memory", "--by", "device"), "memory is drawn by bytes"),
        (("--device", "CPU"), "add --of memory"),
        (("--of", "memory", "--device", "CUDA 3"), "there are: CUDA 0, CPU"),
        (("--of", "memory", "--window", "0s..5us"), "in this part of the trace"),
    ):
        refused = profctl("flame", trace, *words)
        assert (refused.code, why in refused.err) == (2, True), refused.err
    assert "capture with --memory" in profctl("flame", traces[0], "--of", "memory").err


def test_a_flame_graph_of_two(profctl, traces, tmp_path):
    """Drawn and printed, as `merged_diff` has it."""
    drawn = tmp_path / "flame.svg"
    said = profctl("flame", traces[0], traces[1], "-o", str(drawn))
    assert f"{drawn}: " in said.err
    assert 'class="box more-' in drawn.read_text() or 'class="box less-' in drawn.read_text()
    assert f"compared with {traces[0]}" in profctl("flame", traces[0], traces[1]).out
    answer = profctl("flame", traces[0], traces[1], "--json").json
    assert answer["per"] == "step"
    assert {node["name"] for node in answer["nodes"]} >= {"aten::mm", "ProfilerStep*"}
    refused = profctl("flame", traces[0], traces[1], "--step", "1")
    assert (refused.code, "compared as a whole" in refused.err) == (2, True)
    assert profctl("flame", traces[0], "c0123").code == 2


@on_both
def test_gpu(profctl, traces):
    answer = profctl("gpu", traces[0], "--json").json
    [device] = answer["devices"]
    assert (device["busy_ns"], device["idle_waiting_ns"], device["launch_delay_max_ns"]) == (1_200_000, 240_000, 80_000)
    [stream] = answer["streams"]
    assert (stream["stream"], stream["kernels"], stream["queue_max"]) == (7, 4, 1)
    assert answer["links"] == {"device_events": 4, "linked": 3, "stated": 3, "share": 1.0}  # 0 is no correlation id
    shown = profctl("gpu", traces[0])
    assert "CUDA 0 #7" in shown.out
    assert "100% of 3 device events found the call that launched them; the launches of 1 more" in shown.out
    assert profctl("gpu", "nonsense", "--json").code == 3


@on_both
def test_sql(profctl, traces):
    question = "select name, count(*) n, sum(duration_ns)::bigint ns from events where kind = 'kernel' group by name"
    answer = profctl("sql", traces[0], question, "--json").json
    assert [column["name"] for column in answer["columns"]] == ["name", "n", "ns"]
    assert (answer["rows"], answer["truncated"]) == ([["gemm\x1b[31m", 4, 1_200_000]], False)
    shown = profctl("sql", traces[0], question)
    assert "1200000" in shown.out
    assert "\x1b" not in shown.out
    cut = profctl("sql", traces[0], "select row from events order by row", "--limit", "3")
    assert (cut.out.split(), "--limit" in cut.err) == (["row", "0", "1", "2"], True)


@on_both
@pytest.mark.parametrize(
    ("question", "code"),
    [
        ("select * from read_text('/etc/passwd')", 4),
        ("attach '/tmp/x.db'", 2),
        ("load httpfs", 2),
        ("select nonsense from events", 2),
        ("delete from events", 2),
        ("", 2),
    ],
)
def test_sql_reaches_the_trace_only(profctl, traces, question, code):
    done = profctl("sql", traces[0], question, "--json")
    assert (done.code, done.out) == (code, "")
    assert set(json.loads(done.err)) == {"error", "kind"}


@on_both
def test_diff(profctl, traces):
    answer = profctl("diff", *traces, "--json").json
    assert (answer["by"], answer["per"], answer["steps"], answer["message"]) == ("name", "step", [4, 4], None)
    row = answer["rows"][0]
    # The launch inside it is not its own.
    assert (row["name"], row["change"], row["a_ns"], row["b_ns"]) == ("aten::mm", "slower", 190_000, 290_000)
    changes = {entry["name"]: entry["change"] for entry in answer["rows"]}
    assert changes["ProfilerStep*"] == "faster"  # what is left of it
    assert changes["gemm\x1b[31m"] == "same"
    by_path = profctl("diff", *traces, "--by", "path", "--json").json["rows"][0]
    assert by_path["path"] == ["ProfilerStep*", "aten::mm"]
    by_module = profctl("diff", *traces, "--by", "module", "--json").json
    assert {row["name"] for row in by_module["rows"]} == {"(no module)"}
    assert "--stacks --modules" in profctl("diff", *traces, "--by", "module").err
    shown = profctl("diff", *traces)
    assert "slower" in shown.out
    assert "\x1b" not in shown.out


def test_diff_for_a_pipeline(profctl, traces):
    before, after = traces
    slower = profctl("diff", before, after, "--fail-above", "5%")
    assert slower.code == 1
    assert "too slow: aten::mm" in slower.err
    assert profctl("diff", before, after, "--fail-above", "10.1%", "--json").json["failed"] is False
    assert profctl("diff", before, before, "--fail-above", "0", "--json").json["failed"] is False
    assert profctl("diff", before, after, "--fail-above", "much").code == 2

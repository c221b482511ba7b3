"""The table of `profctl top`: columns that say nothing are left out."""

from __future__ import annotations

from typing import Any

import pytest
from profclient.cli.commands.top import next_command, print_rows


def row(name: str, **fields: Any) -> dict[str, Any]:
    times = dict.fromkeys(("cpu_time_total_ns", "self_cpu_time_total_ns", "device_time_total_ns"), 1000)
    return {
        "name": name,
        "count": 1,
        **times,
        "self_device_time_total_ns": 0,
        "node_id": None,
        "module": None,
        **fields,
    }


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def table(*rows: dict[str, Any], screen: int = 120) -> list[list[str]]:
        monkeypatch.setenv("COLUMNS", str(screen))
        print_rows(list(rows))
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= screen
        return [line.split() for line in lines]

    return table


LONG = 123_400_000_000  # nothing takes more room
BUSY = {
    "cpu_time_total_ns": LONG,
    "self_cpu_time_total_ns": LONG,
    "device_time_total_ns": LONG,
    "self_device_time_total_ns": LONG,
    "count": 9999,
}


@pytest.mark.parametrize(
    ("more", "heading"),
    [
        ({"backward_time_total_ns": LONG}, "BACKWARD"),
        ({"input_shapes": [[2048, 2048]] * 9}, "SHAPES"),
        ({"module": "Model_0.layers.3.attn.q_proj"}, "MODULE"),
    ],
)
def test_it_fits_an_ordinary_terminal(printed: Any, more: dict[str, Any], heading: str) -> None:
    head, _ = printed(row("aten::convolution_backward", **{**BUSY, **more}), screen=80)
    assert heading in head


def test_the_average_goes_where_names_have_no_room_and_only_there(printed: Any) -> None:
    wide = row("aten::convolution", **BUSY, backward_time_total_ns=LONG)
    assert "AVG" in printed(wide, screen=88)[0]
    assert "AVG" not in printed(wide, screen=80)[0]


MEMORY = ("cpu_memory_usage", "self_cpu_memory_usage", "device_memory_usage", "self_device_memory_usage")


def test_memory_gives_way_to_names_and_shapes(printed: Any) -> None:
    full = row("aten::max_pool2d", **BUSY, **dict.fromkeys(MEMORY, -260_112_504), input_shapes="[[32, 64, 112, 112]]")
    head, cells = printed(full, screen=80)
    assert "MEM" not in head
    assert "".join(cells).endswith("aten::max_pool2d[[32,64,112,112]]")


def test_what_rows_are_sorted_by_stays(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_rows([row("n" * 40, **BUSY, **dict.fromkeys(MEMORY, -260_112_504))], "device_memory_usage")
    said = capsys.readouterr()
    assert "DEV MEM" in said.out
    assert "SELF DEV MEM" in said.err


STACK = ["/lib/python3.12/threading.py(295): wait", "/lib/python3.12/queue.py(171): get", "/job/train.py(9): main"]


def test_stacks_end_with_the_innermost_frame_and_lose_their_beginning(printed: Any) -> None:
    deep, none = row("wait", **BUSY, stack=STACK), row("other", stack=[])
    head, first, second = printed(deep, none, screen=200)
    assert head[-1] == "STACK"
    assert " ".join(first).endswith("train.py(9): main > queue.py(171): get > threading.py(295): wait")
    assert second[-1] == "other"
    assert " ".join(printed(deep, screen=80)[1]).endswith("> threading.py(295): wait")


def test_nodes_are_told_where_there_are_some_and_0_is_one(printed: Any) -> None:
    head, first, second, third = printed(row("a", node_id=0), row("b", node_id=1), row("c"))
    assert head[-1] == "NODE"
    assert (first[-2:], second[-2:], third[-1]) == (["a", "0"], ["b", "1"], "c")


def test_otherwise_there_is_no_such_column(printed: Any) -> None:
    head, _ = printed(row("a"))
    assert head[-1] == "NAME"


def test_rows_in_no_module_are_blank(printed: Any) -> None:
    head, first, second = printed(row("a", module="Net.layer"), row("b", module=""))
    assert head[-1] == "MODULE"
    assert (first[-1], second[-1]) == ("Net.layer", "b")


def test_what_helps_next_depends_on_what_takes_the_time() -> None:
    function = row("/job/train.py(9): main", self_cpu_time_total_ns=90)
    kernel = row("gemm", self_cpu_time_total_ns=0, self_device_time_total_ns=200)
    op, step = row("aten::mm", self_cpu_time_total_ns=60), row("ProfilerStep*", self_cpu_time_total_ns=1)
    assert next_command([function, op], "") == "profctl tree --merged"
    assert next_command([function, op], "a b", " --step 7") == "profctl tree 'a b' --merged --step 7"
    assert next_command([kernel, function], "t1") == "profctl gpu t1"
    assert next_command([op, step], "t1") == "profctl steps t1"
    assert next_command([op, step], "t1", " --step 7") == "profctl tree t1 --merged --step 7"
    assert next_command([op], "") == "profctl tree --merged"
    assert next_command([row("idle", self_cpu_time_total_ns=0)], "") == ""


def test_rows_of_a_capture_say_how_many_ranks_have_them(printed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    heading, *_ = printed(row("a", ranks=8, traces=8), row("b", ranks=1, traces=1))
    assert heading[-3:] == ["CALLS", "RANKS", "NAME"]
    heading, *lines = printed(row("a", ranks=2, traces=3), row("b", ranks=0, traces=1))
    assert heading[-4:] == ["CALLS", "RANKS", "TRACES", "NAME"]
    assert lines[0][-3:] == ["2", "3", "a"]
    print_rows([row("a", ranks=1, traces=1, rank=3, host="n", trace="t")], origins=("RANK", "HOST"))
    assert capsys.readouterr().out.split("\n")[1].split()[-3:] == ["a", "3", "n"]


ESTIMATES = ("on_cpu", "run_queue", "gil", "lock", "off_cpu")


def estimates(*ns: int | None) -> dict[str, Any]:
    return {f"self_{what}_estimate_ns": each for what, each in zip(ESTIMATES, ns, strict=True)}


def test_columns_of_waits_that_there_are(printed: Any) -> None:
    rows = [row("a", **estimates(600, 0, 400, 0, 0)), row("b", **estimates(*[None] * 5))]
    heading, first, second = printed(*rows)
    assert heading[:7] == ["SELF", "WALL", "~ON", "CPU", "~GIL", "WALL", "TOTAL"]
    assert (first[2:6], second[2:4]) == (["600", "ns", "400", "ns"], ["-", "-"])


@pytest.mark.parametrize("all_of_it", [estimates(1000, 0, 0, 0, 0), {}], ids=["runs", "older"])
def test_time_on_the_cpu_alone_has_no_column(all_of_it: dict[str, Any], printed: Any) -> None:
    assert "~ON" not in printed(row("a", **all_of_it))[0]

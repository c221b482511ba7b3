"""The table of `profctl top`: columns that say nothing are left out."""

from __future__ import annotations

from typing import Any

import pytest
from profclient.cli.commands.top import print_rows


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


def test_the_average_goes_where_there_is_no_room_and_only_there(printed: Any) -> None:
    wide = row("aten::convolution", **BUSY, backward_time_total_ns=LONG)
    assert "AVG" in printed(wide, screen=80)[0]
    assert "AVG" not in printed(wide, screen=78)[0]


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

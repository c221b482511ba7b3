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
    monkeypatch.setenv("COLUMNS", "120")

    def table(*rows: dict[str, Any]) -> list[list[str]]:
        print_rows(list(rows))
        return [line.split() for line in capsys.readouterr().out.splitlines()]

    return table


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

"""What `profctl ranks` and `comm` print, and of what they ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from profclient.cli.app import profctl
from profclient.cli.heat_view import print_heat
from profclient.cli.imported import asked_of
from profclient.errors import UsageError
from profclient.traces import Traces


def heat(*rows: list[float | None], of: str = "work") -> dict[str, Any]:
    origins = [{"rank": rank, "host": None, "trace": f"t{rank}", "late": late} for rank, late in enumerate(rows)]
    return {"of": of, "steps_together": 1, "steps": list(range(5, 5 + len(rows[0]))) if rows else [], "rows": origins}


def test_the_map_is_darker_where_a_rank_is_later(capsys: pytest.CaptureFixture[str]) -> None:
    print_heat(heat([0.0, 0.05, 0.2, 0.4, 0.9, None], [-0.5] * 6))
    *scale, first, second = capsys.readouterr().out.splitlines()
    assert " ".join(" ".join(scale).split()).endswith("a column is a step, 5 to 10")
    assert first == "rank 0  ·░▒▓█ "
    assert second == "rank 1  ······"


def test_several_steps_are_one_column_where_the_terminal_is_narrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    print_heat(heat([0.0, 0.0, 0.0, 0.9, 0.0, 0.0, 0.0, 0.0]))
    *scale, row = capsys.readouterr().out.splitlines()
    assert "a column is 2 steps, the worst of them" in " ".join(" ".join(scale).split())
    assert row == "rank 0  ·█··"


def test_the_scale_fits_a_terminal_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_heat(heat([0.0, 0.9] * 80))
    assert all(len(line) <= 80 for line in capsys.readouterr().out.splitlines())


def test_ranks_that_have_no_row(capsys: pytest.CaptureFixture[str]) -> None:
    late: list[list[float | None]] = [[float(rank == 70)] for rank in range(80)]
    print_heat(heat(*late))
    out, err = capsys.readouterr()
    assert "rank 70  █" in out
    assert "16 ranks more" in err


def test_nothing_is_drawn_of_steps_that_nobody_can_tell_apart(capsys: pytest.CaptureFixture[str]) -> None:
    print_heat({"of": None, "steps_together": 1, "steps": [], "rows": []})
    assert capsys.readouterr().out == ""


class Importing:
    """Keeps what it is given; each capture has a name of its own."""

    def __init__(self) -> None:
        self.files: list[tuple[str, str]] = []
        self.latest = "c7"

    def import_file(self, path: Path, dialect: str = "", capture: str = "") -> dict[str, Any]:
        self.files.append((path.name, capture))
        return {"id": path.name, "capture": "c1" if capture == "new" else capture}

    def get(self, trace: str) -> dict[str, Any]:
        assert trace == ""  # the latest
        return {"id": "t7", "capture": self.latest}


def test_files_become_one_capture_and_an_id_stays_what_it_is(tmp_path: Path) -> None:
    source = Importing()
    files = [tmp_path / f"{rank}.json" for rank in range(2)]
    for file in files:
        file.touch()
    assert asked_of(cast("Traces", source), [str(file) for file in files]) == "c1"
    assert source.files == [("0.json", "new"), ("1.json", "c1")]
    assert asked_of(cast("Traces", source), ["c0123456789ab"]) == "c0123456789ab"
    for given in ([str(files[0]), "c0123456789ab"], ["c1", "c2"]):
        with pytest.raises(UsageError, match="is no file"):
            asked_of(cast("Traces", source), given)


def test_without_an_id_the_capture_of_the_latest_trace_is_meant() -> None:
    source = Importing()
    assert asked_of(cast("Traces", source), []) == "c7"
    source.latest = ""
    with pytest.raises(UsageError, match="your latest trace, t7, is of no capture"):
        asked_of(cast("Traces", source), [])


@pytest.mark.parametrize("question", ["ranks", "comm", "top"])
def test_a_capture_of_many_hosts_is_looked_for_where_it_was_collected(
    question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in a daemon, which has one host's traces: the user's own file says where they are."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PROFD_ADDRESS", f"unix:{tmp_path}/none.sock")
    error = CliRunner().invoke(profctl, [question, "f0123456789ab"]).exception
    assert isinstance(error, UsageError)
    assert "none that was begun or collected here" in str(error)

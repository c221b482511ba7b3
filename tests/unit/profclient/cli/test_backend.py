"""Next commands ask what this one asked."""

from pathlib import Path

import click
import pytest
from profclient.cli import backend
from profclient.cli.backend import following
from profclient.errors import UsageError
from profclient.fleet import records
from profclient.fleet.records import Record
from profclient.fleet.way import Way


@pytest.mark.parametrize(
    ("store", "command", "said"),
    [
        (Path("/a b"), "profctl top 1abc --step 2", "profctl --store '/a b' top 1abc --step 2"),
        (Path("/a"), "profctl top f0123456789ab --by rank", "profctl --store /a top f0123456789ab --by rank"),
        (Path("/a"), "profctl start --pid 7 --memory", "profctl start --pid 7 --memory"),
        (None, "profctl top 1abc", "profctl top 1abc"),
    ],
)
def test_the_store_of_a_command_is_that_of_the_next(store, command, said):
    with click.Context(click.Command("top"), obj=store):
        assert following(command) == said


def test_traces_of_a_collected_capture_are_in_its_folder(monkeypatch):
    monkeypatch.setattr(backend, "_collected", lambda: Path("/brought"))
    with click.Context(click.Command("steps")):
        assert following("profctl steps 1abc") == "profctl --store /brought steps 1abc"
        assert following("profctl top f0123456789ab --by rank") == "profctl top f0123456789ab --by rank"
    assert following("profctl top 1abc") == "profctl top 1abc"


def test_captures_that_are_compared_lie_in_one_folder(monkeypatch, tmp_path):
    """GIVEN two captures of many hosts WHEN they are compared THEN each has been brought here, into the same place."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first, second = ids = "f0123456789ab", "f1123456789ab"
    command = click.Command("diff", params=[click.Argument([name]) for name in "ab"])

    def brought(capture: str, folder: str) -> None:
        (tmp_path / folder / f"capture={capture}").mkdir(parents=True)
        records.write(Record(capture, Way(("n1",), "ssh {host}"), collected=str(tmp_path / folder)))

    with click.Context(command) as context:
        context.params = dict(zip("ab", ids, strict=True))
        brought(first, "here")
        records.write(Record(second, Way(("n1",), "ssh {host}")))
        with pytest.raises(UsageError, match=f"bring it here with `profctl collect {second}"):
            backend._collected()
        brought(second, "there")
        with pytest.raises(UsageError, match="in two folders"):
            backend._collected()
        brought(second, "here")
        assert backend._collected() == tmp_path / "here"

"""Next commands ask what this one asked."""

from pathlib import Path

import click
import pytest
from profclient.cli import backend
from profclient.cli.backend import following


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

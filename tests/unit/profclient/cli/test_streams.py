"""Where `profctl` writes to: what is full, closed, or has another encoding is told, and no traceback."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import click
import pytest
from profclient.cli import app, output


def profctl(redirected: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command with streams as the shell is told."""
    return python(redirected, "from profclient.cli import main; main()", *arguments)


def python(redirected: str, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    shell = ["sh", "-c", f'exec "$@" {redirected}', "sh"]
    command = [*shell, sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_full_disk_is_told() -> None:
    done = profctl(">/dev/full", "completion", "bash")
    assert (done.returncode, done.stderr) == (1, "profctl: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "<&-", ">&- <&-", "2>&-", ">&- 2>&- <&-"])
def test_a_closed_stream_is_the_null_device(closed: str) -> None:
    done = profctl(closed, "completion", "bash")
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (">&-" not in closed.replace("2>&-", ""))


def test_no_file_takes_the_number_of_a_closed_stream() -> None:
    script = "from profclient import streams; streams.open_all(); print(open('/etc/passwd').fileno() > 2)"
    done = python("<&- 2>&-", script)
    assert done.stdout == "True\n"


def test_letters_that_the_encoding_lacks_are_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "latin-1", write_through=True))
    app._show_what_the_encoding_lacks()
    output.emit_json({"name": "\N{REPLACEMENT CHARACTER}ü"})
    click.echo("ü\N{HORIZONTAL ELLIPSIS}")
    said, text = written.getvalue().decode("latin-1").splitlines()
    assert json.loads(said) == {"name": "\N{REPLACEMENT CHARACTER}ü"}
    assert text == "ü\\u2026"


@pytest.mark.parametrize(
    ("said", "columns"), [("80", 80), ("0", 1), ("", 240), ("abc", 240), ("-5", 240), ("²", 240), ("9" * 5000, 240)]
)
def test_a_width_that_is_none_does_not_count(said: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", said)
    assert output.said_columns(240) == columns

"""What flight recorders say of collectives, as `profctl where` prints it behind the stacks."""

from __future__ import annotations

from typing import Any, Final

import click
from profproto.v1 import capture_pb2

from profclient.as_json import optional
from profclient.cli.output import printable, say

_TITLES: Final = {"hang": "HANG", "mismatch": "MISMATCH"}


def print_collectives(said: capture_pb2.Collectives, host: str = "") -> None:
    """A trouble, or one line that there is none; what could not be asked goes to stderr."""
    of_job = " ".join(filter(None, (host, f"job {said.job}" if said.job else "")))
    start = f"{printable(of_job)}: " if of_job else ""
    title = _TITLES.get(said.state)
    sentences = [printable(sentence) for sentence in said.sentences]
    if title:
        click.echo(f"{title}: {start}{sentences[0]}" if sentences else f"{title} {start}")
        for sentence in sentences[1:]:
            click.echo(f"    {sentence}")
    else:
        click.echo(f"Collectives: {start}{' '.join(sentences)}")
    for note in said.notes:
        say(f"not asked for its collectives: {printable(note)}")


def collectives_json(said: capture_pb2.Collectives) -> dict[str, Any]:
    """The same for `--json`."""
    return {
        "job": said.job or None,
        "state": said.state,
        "sentences": list(said.sentences),
        "group": said.group or None,
        "sequence": optional(said, "sequence"),
        "operation": said.operation or None,
        "waited_ns": optional(said, "waited_ns"),
        "missing": [
            {
                "name": each.name,
                "last": optional(each, "last"),
                "at": frame_json(each.at) if each.HasField("at") else None,
                "what": each.what or None,
            }
            for each in said.missing
        ],
        "waiting": list(said.waiting),
        "waits_at": frame_json(said.waits_at) if said.HasField("waits_at") else None,
        "notes": list(said.notes),
    }


def frame_json(frame: capture_pb2.Frame) -> dict[str, Any]:
    """A line of a program."""
    return {"function": frame.function, "file": frame.file, "line": frame.line}

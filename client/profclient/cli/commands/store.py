"""`profctl store`: verbs for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from profclient.cli.backend import traces
from profclient.cli.options import json_option
from profclient.cli.output import counted, emit_json, printable, say
from profclient.cli.units import parse_size, size
from profclient.errors import UsageError

if TYPE_CHECKING:
    from profclient.offline import OfflineTraces


@click.group()
def store() -> None:
    """Look after the store."""


@store.command()
@click.pass_context
def rebuild(ctx: click.Context) -> None:
    """Build the catalog again from the traces on disk. The daemon must be stopped.

    \b
      profctl --store /var/lib/profd store rebuild
    """
    result = _stopped(ctx, "rebuild").rebuild()
    say(f"{counted(result['traces'], 'trace')} in the catalog.")
    _end(ctx, result["damaged"])


@store.command(short_help="Write traces of earlier releases in today's format.")
@json_option
@click.pass_context
def upgrade(ctx: click.Context, as_json: bool) -> None:
    """Write traces that earlier releases have stored in today's format. The daemon must be stopped.

    Each trace stays as it was until its successor is on the disk. An upgrade that was interrupted goes on where it was.

    \b
      profctl --store /var/lib/profd store upgrade
    """
    result = _stopped(ctx, "upgrade").upgrade()
    if as_json:
        emit_json(result)
    else:
        say(f"{counted(len(result['anew']), 'trace')} written anew, {result['others']} were of today's format.")
    _end(ctx, result["damaged"])


def _stopped(ctx: click.Context, verb: str) -> OfflineTraces:
    """The store that was named, whose daemon is not asked."""
    directory = ctx.find_root().obj
    if directory is None:
        raise UsageError(f"no store was named. Stop profd, then run `profctl --store DIR store {verb}`.")
    from profclient.offline import OfflineTraces

    return OfflineTraces(directory)


def _end(ctx: click.Context, damaged: list[str]) -> None:
    for sentence in damaged:
        say(f"damaged: {printable(sentence)}")
    ctx.exit(6 if damaged else 0)


@store.command(short_help="List the traces that a new trace would push out.")
@click.option(
    "--size", "wanted", default="0", show_default=True, metavar="SIZE", help="Size of the new trace: 500MB, 2GiB."
)
@json_option
def evictions(wanted: str, as_json: bool) -> None:
    """List the traces that the store would delete for a new trace of yours. The command deletes none.

    The store deletes the oldest traces of the user with the most bytes first, and no pinned trace.
    """
    with traces() as source:
        found = source.evictions(parse_size(wanted))
    if as_json:
        emit_json(found)
        return
    for trace in found["traces"]:
        click.echo(f"{trace['id']}  {size(trace['bytes'])}  {printable(trace['owner'])}  {printable(trace['title'])}")
    if found["refusal"]:
        say(f"the new trace would not be stored: {printable(found['refusal'])}")
    else:
        others = f" and {found['others']} of other users" if found["others"] else ""
        listed = f" (the first {len(found['traces'])} are listed)" if found["more"] else ""
        say(f"{counted(len(found['traces']) + found['more'], 'trace')}{listed}{others} would go.")
    say(
        f"stored: {size(found['stored_bytes'])} of {size(found['limit_bytes'])}; yours: {size(found['own_bytes'])} "
        f"({size(found['own_pinned_bytes'])} pinned), an equal share is {size(found['share_bytes'])}."
    )

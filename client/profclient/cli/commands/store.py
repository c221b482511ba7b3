"""`profctl store`: verbs for operators."""

from __future__ import annotations

import click

from profclient.cli.backend import traces
from profclient.cli.options import json_option
from profclient.cli.output import counted, emit_json, printable, say
from profclient.cli.units import parse_size, size
from profclient.errors import UsageError


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
    directory = ctx.find_root().obj
    if directory is None:
        raise UsageError("no store was named. Stop profd, then run `profctl --store DIR store rebuild`.")
    from profclient.offline import OfflineTraces

    result = OfflineTraces(directory).rebuild()
    say(f"{counted(result['traces'], 'trace')} in the catalog.")
    for sentence in result["damaged"]:
        say(f"damaged: {printable(sentence)}")
    ctx.exit(6 if result["damaged"] else 0)


@store.command()
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
        more = f" and {found['others']} of other users" if found["others"] else ""
        say(f"{counted(len(found['traces']), 'trace')}{more} would go.")
    say(
        f"stored: {size(found['stored_bytes'])} of {size(found['limit_bytes'])}; yours: {size(found['own_bytes'])} "
        f"({size(found['own_pinned_bytes'])} pinned), an equal share is {size(found['share_bytes'])}."
    )

"""`profctl store`: verbs for operators."""

from __future__ import annotations

import click

from profclient.cli.output import counted, printable, say
from profclient.errors import UsageError


@click.group()
def store() -> None:
    """Look after the store."""


@store.command()
@click.pass_context
def rebuild(ctx: click.Context) -> None:
    """Make the catalog anew from the traces on disk. The daemon must not be running.

    \b
      profctl --store /var/lib/profd store rebuild
    """
    directory = ctx.find_root().obj
    if directory is None:
        raise UsageError("which store? `profctl --store DIR store rebuild`, with profd stopped.")
    from profclient.offline import OfflineTraces

    result = OfflineTraces(directory).rebuild()
    say(f"{counted(result['traces'], 'trace')} in the catalog.")
    for sentence in result["damaged"]:
        say(f"damaged: {printable(sentence)}")
    ctx.exit(6 if result["damaged"] else 0)

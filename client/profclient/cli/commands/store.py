"""`profctl store`: verbs for operators."""

from __future__ import annotations

import click

from profclient.cli.output import say
from profclient.errors import UsageError


@click.group()
def store() -> None:
    """Look after the store."""


@store.command()
def rebuild() -> None:
    """Make the catalog anew from the traces on disk. The daemon must not be running.

    \b
      profctl --store /var/lib/profd store rebuild
    """
    directory = click.get_current_context().find_root().obj
    if directory is None:
        raise UsageError("which store? `profctl --store DIR store rebuild`, with profd stopped.")
    from profclient.offline import OfflineTraces

    say(OfflineTraces(directory).rebuild())

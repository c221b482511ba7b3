"""`profctl completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from profclient.errors import UsageError


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion of a shell, for its start-up file: eval "$(profctl completion bash)"."""
    from profclient.cli.app import profctl

    found = get_completion_class(shell)
    if found is None:
        raise UsageError(f"no completion for {shell}.")
    click.echo(found(profctl, {}, "profctl", "_PROFCTL_COMPLETE").source())

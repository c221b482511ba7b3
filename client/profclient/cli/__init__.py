"""`profctl`: one module per command in `commands/`."""

from profclient.cli.app import main

__all__ = ["main"]

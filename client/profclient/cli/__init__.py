"""`profctl`: one module per command in `commands/`."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run `profctl`. Imported here, so that Ctrl-C while its parts are loaded is no traceback either."""
    try:
        from profclient import launch, streams

        streams.open_all()
        if command := launch.plain_command(sys.argv[1:]):  # it starts before click would have been imported
            sys.exit(launch.launch(command, os.environ))
        from profclient.cli import app
    except KeyboardInterrupt:
        sys.exit(130)
    app.main()

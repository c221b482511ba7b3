"""`profctl`: one module per command in `commands/`."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run `profctl`. Imported here, so that Ctrl-C while its parts are loaded is no traceback either."""
    _open_streams()
    try:
        from profclient import launch

        if command := launch.plain_command(sys.argv[1:]):  # it starts before click would have been imported
            sys.exit(launch.launch(command, os.environ))
        from profclient.cli import app
    except KeyboardInterrupt:
        sys.exit(130)
    app.main()


def _open_streams() -> None:
    """Where the caller has closed stdin, stdout or stderr, /dev/null stands in: the next file would take its number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)

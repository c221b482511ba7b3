"""`python -P -m profclient.relay`, as a client starts it on a host."""

from __future__ import annotations

import os
import signal
import sys

from profclient.relay.lines import Garbled
from profclient.relay.serve import SILENCE_SECONDS, Relay


def main() -> int:
    """The process; its exit code."""
    if os.isatty(0):
        print("A relay speaks to `profctl --hosts`, which starts it: docs/relay-protocol.md.", file=sys.stderr)
        return 2
    signal.alarm(SILENCE_SECONDS)
    out = os.dup(1)
    os.dup2(2, 1)  # whatever else prints here is no line of ours
    try:
        Relay(0, out).serve()
    except Garbled as error:
        print(f"profclient.relay: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

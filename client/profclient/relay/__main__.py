"""`python -P -m profclient.relay`, as a client starts it on a host.

With `--shared VARIABLE` the carrier has the lines of many relays: this one's address is in the variable.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` wraps what it has in an enum
import os
import sys

from profclient.priority import give_way
from profclient.relay.lines import GONE, HERE, OF, Garbled
from profclient.relay.serve import SILENCE_SECONDS, Relay

NICE = 5  # below the job beside it, above idle: a host that is busy is still to be recorded


def main() -> int:
    """The process; its exit code."""
    if os.isatty(0):
        print("A relay speaks to `profctl --hosts`, which starts it: docs/relay-protocol.md.", file=sys.stderr)
        return 2
    address = b""
    if sys.argv[1:2] == ["--shared"]:
        address = os.environb.get(os.fsencode("".join(sys.argv[2:3])), b"")
        if not address:
            print(f"profclient.relay: no {sys.argv[2:3]} in the environment says who this is", file=sys.stderr)
            return 2
    give_way(NICE)
    signal.alarm(SILENCE_SECONDS)
    out = os.dup(1)
    os.dup2(2, 1)  # whatever else prints here is no line of ours
    try:
        if address:
            os.write(out, OF + address + b" " + HERE + b"\n")
        Relay(0, out, address).serve()
        if address:
            os.write(out, OF + address + b" " + GONE + b"\n")
    except Garbled as error:
        print(f"profclient.relay: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

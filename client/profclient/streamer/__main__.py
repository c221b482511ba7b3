"""`python -m profclient.streamer --link FD --socket PATH`: started by the daemon, never by hand."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
from pathlib import Path

from profclient.streamer.link import Link
from profclient.streamer.service import Service

NICE = 5  # below the job, above idle: a saturated node is still to drain
MEMORY_BYTES_MAX = 2 << 30  # of data; arenas are mapped and do not count
_PR_SET_NO_NEW_PRIVS = 38


def main(argv: list[str]) -> int:
    """Serve the daemon at the other end of the link until one of them ends."""
    parser = argparse.ArgumentParser(prog="profclient.streamer", description=__doc__, allow_abbrev=False)
    parser.add_argument("--link", type=int, required=True, help="descriptor of the SEQPACKET socket")
    parser.add_argument("--socket", type=Path, required=True, help="the daemon's gRPC socket")
    arguments = parser.parse_args(argv)
    _lower()
    link = Link(socket.socket(fileno=arguments.link))
    asyncio.run(Service(link, arguments.socket).run())
    return 0


def _lower() -> None:
    """Less weight than the job, no privileges to be had, bounded memory, the first to go when there is none."""
    with contextlib.suppress(OSError):
        os.setsid()  # the terminal's Ctrl-C is the daemon's
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICE)
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for limit, value in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_DATA, MEMORY_BYTES_MAX)):
        hard = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

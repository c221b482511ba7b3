"""`python -m profclient.streamer --link FD --socket PATH`: started by the daemon, never by hand."""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from profclient.streamer.confine import confine
from profclient.streamer.link import Link
from profclient.streamer.service import Service


def main(argv: list[str], shut_in: Callable[[], None] = lambda: None) -> int:
    """Serve the daemon at the other end of the link until one of them ends; `shut_in` is called before."""
    parser = argparse.ArgumentParser(prog="profclient.streamer", description=__doc__, allow_abbrev=False)
    parser.add_argument("--link", type=int, required=True, help="descriptor of the SEQPACKET socket")
    parser.add_argument("--socket", type=Path, required=True, help="the daemon's gRPC socket")
    arguments = parser.parse_args(argv)
    confine()
    shut_in()
    link = Link(socket.socket(fileno=arguments.link))
    asyncio.run(Service(link, arguments.socket).run())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

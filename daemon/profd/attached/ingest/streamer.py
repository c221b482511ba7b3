"""`python -m profd.attached.ingest.streamer --link FD --socket PATH`: a streamer, shut in before it hears of an arena.

`profclient.streamer` has its work. A target writes what it reads, so it gets nothing of the host but this code and
the daemon's sockets. Where the kernel has neither seccomp nor Landlock its uid alone keeps it from the rest.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from typing import Final

from profclient.streamer.__main__ import main
from profclient.streamer.confine import limit

from profd.attached.ingest.streamer_calls import CALLS
from profd.kernel import nobody
from profd.limits import STREAMER_TASKS_MAX
from profd.workers import calls, code, confine, landlock

_SEED: Final = "/dev/urandom"  # gRPC does not start without
_PR_SET_DUMPABLE: Final = 4
_EVERY_THREAD: Final = 1  # SECCOMP_FILTER_FLAG_TSYNC


def shut_in() -> None:
    """For good."""
    if os.geteuid() == nobody.STREAMER:
        # Of this uid are only other streamers: these are not to look into it either, and share a number of tasks.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        limit(resource.RLIMIT_NPROC, STREAMER_TASKS_MAX)
    landlock.restrict([*code.places(), _SEED], [])
    if calls.known():
        confine.install(calls.program(os.getpid(), ask=False, other=CALLS), _EVERY_THREAD)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], shut_in))

"""Becomes py-spy, tied to the daemon. Run as a script, in its own interpreter.

    python -I -S launch.py PARENT FILE_BYTES MEMORY_BYTES py-spy …

The daemon has threads, so nothing may run in its child between fork and exec;
what must be set there is set here. Whatever kills the daemon, the kernel then
interrupts py-spy, which lets go of the target and ends by itself. A kill could
leave a target stopped that py-spy was just attaching to.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Set the limits and exec the command; ends with status 1 if the daemon is gone already."""
    parent, file_bytes, memory_bytes = (int(value) for value in arguments[:3])
    command = arguments[3:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        sys.exit(1)
    for limit, value in (
        (resource.RLIMIT_FSIZE, file_bytes),
        # Not the address space: with native frames py-spy maps the libraries of its target, gigabytes of them.
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(limit)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (allowed, hard))
    # Python ignores this one, py-spy would inherit that and fail in other words.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.execv(command[0], command)  # noqa: S606 - becoming the command is the point


if __name__ == "__main__":
    main(sys.argv[1:])

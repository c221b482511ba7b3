"""Rights that a streamer gives up before it reads an arena, which a target writes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct

from profclient.priority import give_way

NICE = 5  # below the job, above idle: a saturated node is still to drain
MEMORY_BYTES_MAX = 2 << 30  # of data; arenas are mapped and do not count
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITIES = 64
_CAPABILITY_VERSION_3 = 0x20080522


def confine() -> None:
    """Less weight than the job, no privileges, bounded memory, the first to go when there is none."""
    with contextlib.suppress(OSError):
        os.setsid()  # the terminal's Ctrl-C is the daemon's
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    give_way(NICE)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_DATA, MEMORY_BYTES_MAX)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    drop_privileges()


def drop_privileges(kept: int = 0) -> None:
    """No capabilities (a target may be root's) but what heirs get of `kept`, as bits; none to be had by exec."""
    libc = ctypes.CDLL(None)
    for capability in range(_CAPABILITIES):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # EPERM without CAP_SETPCAP: no_new_privs covers it
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header, data = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), ctypes.create_string_buffer(24)
    libc.capget(header, data)
    _, permitted, inheritable = struct.unpack_from("=3I", data.raw)
    held = kept & permitted & inheritable  # what is not inherited yet cannot be, with nothing in the bounding set
    libc.capset(header, struct.pack("=6I", held, held, held, 0, 0, 0))


def limit(which: int, value: int) -> None:
    """A resource is limited to this much, or what it is limited to already, for good."""
    hard = resource.getrlimit(which)[1]
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (allowed, allowed))

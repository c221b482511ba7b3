"""In a streamer's place, shut in like one: it tries what one that was taken over would, and says what came of it.

Arguments: the pid of a process of the same uid, the numbers of system calls that are not left to it (1,2,3), then
paths to read.
"""

import ctypes
import errno
import json
import os
import platform
import resource
import signal
import socket
import sys
import threading

from profclient.streamer.confine import confine
from profd.attached.ingest.streamer import shut_in

OTHER = int(sys.argv[1])
CALLS = [int(number) for number in sys.argv[2].split(",")]
PATHS = sys.argv[3:]
NUMBERS = {
    "x86_64": {"ptrace": 101, "execve": 59, "readv": 310, "clone": 56, "prlimit64": 302, "tgkill": 234, "prctl": 157},
    "aarch64": {
        "ptrace": 117,
        "execve": 221,
        "readv": 270,
        "clone": 220,
        "prlimit64": 261,
        "tgkill": 131,
        "prctl": 167,
    },
}[platform.machine()]

libc = ctypes.CDLL(None, use_errno=True)


def call(number, *arguments):
    """The name of the error, or `done`."""
    result = libc.syscall(ctypes.c_long(number), *(a if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments))
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]


def attempt(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    except ValueError:  # as Python calls it when a hard limit may not be raised
        return "EPERM"
    return "done"


def read(path):
    with open(path, "rb") as file:
        return file.read(16)


def started():
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()


def unix():
    one, other = socket.socketpair()
    one.close()
    other.close()
    socket.socket(socket.AF_UNIX).close()


confine()
shut_in()
fork = int(signal.SIGCHLD)
found = {
    "fork": call(NUMBERS["clone"], fork, 0, 0, 0, 0),
    "namespace": call(NUMBERS["clone"], 0x10000000 | fork, 0, 0, 0, 0),
    "os.fork": attempt(os.fork),
    "execve": call(NUMBERS["execve"], b"/bin/true", 0, 0),
    "trace": call(NUMBERS["ptrace"], 0x4206, OTHER, 0, 0),
    "memory": call(NUMBERS["readv"], OTHER, 0, 0, 0, 0, 0),
    "limits of another": call(NUMBERS["prlimit64"], OTHER, 7, 0, 0),
    "signal": attempt(lambda: os.kill(OTHER, 0)),
    "signal to a thread": call(NUMBERS["tgkill"], OTHER, OTHER, 0),
    "dumpable again": call(NUMBERS["prctl"], 4, 1, 0, 0, 0),
    **{
        f"socket {family}": attempt(lambda family=family: socket.socket(family, socket.SOCK_DGRAM))
        for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_VSOCK, 38)  # AF_ALG
    },
    "setuid": attempt(lambda: os.setuid(0)),
    "more tasks": attempt(lambda: resource.setrlimit(resource.RLIMIT_NPROC, (1 << 20, 1 << 20))),
    "writing": attempt(lambda: os.open("/tmp/of-a-streamer", os.O_WRONLY | os.O_CREAT)),
    "calls": sorted({call(number, 0, 0, 0, 0, 0, 0) for number in CALLS}),
    "paths": {path: attempt(lambda path=path: read(path)) for path in PATHS},
    "may": [attempt(started), attempt(unix)],
}
print(json.dumps(found), flush=True)

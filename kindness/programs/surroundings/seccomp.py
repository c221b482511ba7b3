"""From its middle on, a seccomp filter kills the program if it opens a socket or looks into other processes."""

import ctypes
import platform
import struct
import sys

from place import TURNS, libc, work

FORBIDDEN = {"x86_64": (41, 101, 310, 311), "aarch64": (198, 117, 270, 271)}  # socket, ptrace, process_vm_*
numbers = FORBIDDEN.get(platform.machine())
if numbers is None:
    sys.exit("skip: no numbers of system calls for this machine")
before = work(TURNS // 2)
load = struct.pack("HBBI", 0x20, 0, 0, 0)  # the system call's number
checks = b"".join(struct.pack("HBBI", 0x15, len(numbers) - place, 0, n) for place, n in enumerate(numbers))
ends = struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000) + struct.pack("HBBI", 0x06, 0, 0, 0x80000000)  # allow, kill process
program = load + checks + ends


class Filter(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]


libc("prctl", 38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
libc("prctl", 22, 2, ctypes.byref(Filter(len(program) // 8, program)), 0, 0)  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
print("ok", before + work(TURNS // 2))

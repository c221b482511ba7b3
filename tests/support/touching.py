"""A program of a user who tries to get into processes of theirs that are children of another one, whenever they can.

Arguments: the pid of the parent, and descriptors that the children have. It prints `ready`, tries until its standard
input ends, and prints as JSON how often it tried, the pids that it met as theirs, and what was let through.
"""

import ctypes
import json
import os
import select
import sys

PARENT, *DESCRIPTORS = map(int, sys.argv[1:])
_PIDFD_GETFD = 438
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
here = ctypes.create_string_buffer(16)
seen = set()
through = set()
tries = 0


def written(pid):
    """To an address that there is none: the right to is looked at first."""
    local, remote = (ctypes.c_void_p * 2)(ctypes.addressof(here), 1), (ctypes.c_void_p * 2)(8, 1)
    if libc.process_vm_writev(pid, local, ctypes.c_ulong(1), remote, ctypes.c_ulong(1), ctypes.c_ulong(0)) < 0:
        error = ctypes.get_errno()
        raise OSError(error if error != 14 else 0, "")


def traced(request, pid):
    if libc.ptrace(request, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "")


def got(pid, descriptor):
    holder = os.pidfd_open(pid)
    try:
        found = libc.syscall(ctypes.c_long(_PIDFD_GETFD), ctypes.c_long(holder), ctypes.c_long(descriptor), 0)
        if found < 0:
            raise OSError(ctypes.get_errno(), "")
        os.close(found)
    finally:
        os.close(holder)


def opened(path, flags):
    os.close(os.open(path, flags | os.O_CLOEXEC))


def attempt(what, pid, action, *arguments):
    global tries
    tries += 1
    try:
        action(*arguments)
    except OSError as error:
        if error.errno:  # 0: let through, and nothing there
            return
    through.add((pid, what))


def touch(pid):
    for descriptor in DESCRIPTORS:
        attempt("open a descriptor", pid, opened, f"/proc/{pid}/fd/{descriptor}", os.O_WRONLY)
        attempt("take a descriptor", pid, got, pid, descriptor)
    attempt("read its memory", pid, opened, f"/proc/{pid}/mem", os.O_RDONLY)
    attempt("write its memory", pid, opened, f"/proc/{pid}/mem", os.O_RDWR)
    attempt("write into it", pid, written, pid)
    attempt("read its environment", pid, lambda: os.stat(f"/proc/{pid}/cwd/"))
    attempt("seize it", pid, traced, 0x4206, pid)
    attempt("attach to it", pid, traced, 16, pid)


def descendants():
    """Of the parent, and not of this program's own making."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                pass
    found, more = set(), {PARENT}
    while more:
        more = {pid for pid, parent in parents.items() if parent in more and pid != os.getpid()}
        found |= more
    return found


print("ready", flush=True)
last = False
while not last:
    last = bool(select.select([sys.stdin], [], [], 0)[0])  # once more, when all that there will be is there
    for pid in descendants():
        try:
            with open(f"/proc/{pid}/status") as file:
                status = dict(line.split(":", 1) for line in file)
        except OSError:
            continue
        if status["Uid"].split()[1] == str(os.geteuid()) and not status["State"].strip().startswith("Z"):
            seen.add((pid, status["Name"].strip(), status["CapPrm"].strip()))
            touch(pid)
print(json.dumps({"tries": tries, "seen": sorted(seen), "through": sorted(through)}), flush=True)
os._exit(0)

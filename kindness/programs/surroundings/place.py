"""What programs of this folder do in their surroundings: Python work that is easy to check."""

import ctypes
import os
import sys
import threading
import time

TURNS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
_libc = ctypes.CDLL(None, use_errno=True)


def work(turns=TURNS):
    """Calls, threads, memory; a number."""
    total = 0
    for turn in range(turns):
        found = []
        threads = [threading.Thread(target=lambda f=found, t=turn: f.append(sum(range(t)))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            end(thread)
        total += sum(found)
        time.sleep(0.01)
    return total


def end(thread):
    """Join it, and wait until the kernel has done so, too: Python joins a thread before its stack is free again, and
    with RLIMIT_AS there may be no place for another one.
    """
    thread.join()
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):
        time.sleep(0.0005)


def again():
    """The command of a Python that only works, in whatever the surroundings are now."""
    return [sys.executable, __file__, str(TURNS)]


def libc(name, *arguments):
    """A function of the C library; ends the program with what is wrong."""
    if getattr(_libc, name)(*arguments) != 0:
        sys.exit(f"skip: {name}: {os.strerror(ctypes.get_errno())}")


def private_mounts():
    """A mount namespace of our own, from which nothing gets out."""
    libc("unshare", 0x00020000)  # CLONE_NEWNS
    libc("mount", b"none", b"/", None, (1 << 14) | (1 << 18), None)  # MS_REC | MS_PRIVATE


if __name__ == "__main__":
    print("ok", work())

"""A daemon as in the book: two forks, setsid, every descriptor closed. The first process waits to hear from it."""

import contextlib
import os
import sys

from place import TURNS, work

reads, writes = os.pipe()
if os.fork():
    os.close(writes)
    os.wait()
    with os.fdopen(reads) as pipe:
        said = pipe.read()
    print(said)
    sys.exit(not said.startswith("ok"))
os.setsid()
if os.fork():
    os._exit(0)
os.chdir("/")
os.umask(0)
os.dup2(writes, 3)
for descriptor in (0, 1, 2, *range(4, 1024)):
    with contextlib.suppress(OSError):
        os.close(descriptor)
for _ in range(3):
    os.open("/dev/null", os.O_RDWR)
os.write(3, f"ok {work(TURNS)}".encode())
os._exit(0)

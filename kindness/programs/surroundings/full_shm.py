"""/dev/shm without a free byte."""

import os
import sys

from place import again, libc, private_mounts

private_mounts()
libc("mount", b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=64k")
with open("/dev/shm/all", "wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
sys.stdout.flush()
os.execv(sys.executable, again())

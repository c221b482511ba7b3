"""RLIMIT_NOFILE of 16, and all of them open for a while."""

import os
import resource

from place import TURNS, work

resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
total, opened = 0, []
for _ in range(4):
    try:
        while True:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    total += work(TURNS // 4)
    while opened:
        os.close(opened.pop())
print("ok", total)

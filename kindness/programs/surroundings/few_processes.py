"""RLIMIT_NPROC that leaves room for no further process or thread, as a user without privileges."""

import os
import resource
import sys
import threading
import time

if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65533)
    os.setuid(65533)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
refused, total = 0, 0
for turn in range(int(sys.argv[1])):
    thread = threading.Thread(target=time.sleep, args=(0,))
    try:
        thread.start()
        thread.join()
    except RuntimeError:
        refused += 1
    total += sum(range(turn))
    time.sleep(0.01)
print("ok", total, refused == int(sys.argv[1]))

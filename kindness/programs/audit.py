"""An audit hook that lets the interpreter lock go, and short threads: each thread's target has to run."""

import sys
import threading
import time

from turns import turns

started, ran = [0] * 4, [0] * 4


def hook(event, arguments):
    """What a security tool does that writes a log."""
    if event in ("sys.setprofile", "sys.settrace"):
        time.sleep(0.0005)


def short(index):
    """A target: it has to run."""
    for _ in range(50):
        len("x")
    counted[index].append(1)


counted = [[] for _ in range(4)]
sys.addaudithook(hook)
over = threading.Event()


def many(index):
    """Threads that come and go."""
    while not over.is_set():
        threads = [threading.Thread(target=short, args=(index,)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        started[index] += len(threads)
        ran[index] += len(counted[index])
        counted[index].clear()
        time.sleep(rest)


rest = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
keepers = [threading.Thread(target=many, args=(index,)) for index in range(4)]
for keeper in keepers:
    keeper.start()
for _ in turns():
    time.sleep(0.05)
over.set()
for keeper in keepers:
    keeper.join()
if started != ran:
    sys.exit(f"of {sum(started)} threads only {sum(ran)} ran their target")

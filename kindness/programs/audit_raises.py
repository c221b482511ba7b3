"""An audit hook that forbids profilers: whoever sets one is told no, and the program goes on."""

import sys
import threading

import profclient
from turns import expect, turns


def hook(event, arguments):
    """No profilers here, and no tracers."""
    if event in ("sys.setprofile", "sys.settrace"):
        raise RuntimeError("profilers are forbidden")


sys.addaudithook(hook)
for _ in turns():
    ran = []
    threads = [threading.Thread(target=ran.append, args=(number,)) for number in range(10)]
    profclient.instant("begin")  # what is left to record where calls are forbidden
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect("targets that ran", sorted(ran), list(range(10)))

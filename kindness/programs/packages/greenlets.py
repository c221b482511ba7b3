"""greenlet: switches between stacks, exceptions through them, greenlets of threads."""

import sys
import threading
import time

from greenlet import GreenletExit, getcurrent, greenlet


def counter(limit):
    """Gives numbers to its parent, one a switch."""
    for number in range(limit):
        getcurrent().parent.switch(number)
    return -1


def deep(depth):
    """A switch from far below."""
    return deep(depth - 1) + 1 if depth else getcurrent().parent.switch("deep")


def turn():
    """Some of everything; a number."""
    numbers = greenlet(counter)
    total = numbers.switch(50)
    while not numbers.dead:
        total += numbers.switch()
    below = greenlet(deep)
    if below.switch(100) != "deep" or below.switch(1) != 101:
        sys.exit("a deep stack came back wrong")
    doomed = greenlet(deep)
    doomed.switch(3)
    if not isinstance(doomed.throw(GreenletExit), GreenletExit):
        sys.exit("GreenletExit did not end it")
    return total


totals = []
for _ in range(int(sys.argv[1])):
    threads = [threading.Thread(target=lambda: totals.append(turn())) for _ in range(3)]
    for thread in threads:
        thread.start()
    totals.append(turn())
    for thread in threads:
        thread.join()
    time.sleep(0.01)
print("ok", len(totals), sum(totals))

"""An interval timer whose handler runs Python, exceptions from handlers, waits that signals interrupt."""

import signal
import time

from turns import turns

ticks = 0


class Enough(Exception):
    """Raised by a handler."""


def tick(number, frame):
    """A handler that looks at the frame it interrupted."""
    global ticks
    ticks += 1
    if frame is None:
        raise SystemExit("a handler was given no frame")


def enough(number, frame):
    """A handler that raises."""
    raise Enough


signal.signal(signal.SIGALRM, tick)
signal.signal(signal.SIGUSR1, enough)
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
for _ in turns():
    before = time.monotonic()
    time.sleep(0.005)
    if time.monotonic() - before < 0.005:
        raise SystemExit("a sleep was cut short by a signal")
    try:
        signal.raise_signal(signal.SIGUSR1)
        for _ in range(100000):
            pass
    except Enough:
        continue
    raise SystemExit("a handler that raises was not heard of")
signal.setitimer(signal.ITIMER_REAL, 0)

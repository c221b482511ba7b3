"""What each program of the storm has in common: turns until its time (argv[1], seconds) is over, then `ok`.

Between turns it rests for argv[2] seconds, so that many programs share a machine. A turn that takes STALL_SECONDS is a
stall, on machines however busy.
"""

import sys
import time

STALL_SECONDS = 60.0


def turns():
    """Numbers from 0 on. The program ends with 1 where a turn stalled."""
    seconds, rest = float(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    begin = last = time.monotonic()
    number = 0
    while last - begin < seconds:
        yield number
        number += 1
        if rest:
            time.sleep(rest)
        now = time.monotonic()
        if now - last > STALL_SECONDS:
            sys.exit(f"turn {number} took {now - last:.0f} s")
        last = now
    print("ok", number)


def expect(what, got, wanted):
    """End with 1 and a sentence where a result is not what it has to be."""
    if got != wanted:
        sys.exit(f"{what}: {got!r}, expected {wanted!r}")

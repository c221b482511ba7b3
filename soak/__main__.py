"""`python -m soak`: kills at random moments, or long use; counted over all runs of the same sources."""

from __future__ import annotations

import argparse
import random
import signal
import sys

from kindness import place
from soak import counts, rounds


def main() -> int:
    """1 where something was not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=0, help="processes to kill")
    parser.add_argument("--seed", type=int, default=None, help="of all that is random; another one each time")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    ledger = counts.ledger()
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, sources {place.digest()} ({place.commit()})", flush=True)
    rounds.run(ledger, arguments.kills, seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())

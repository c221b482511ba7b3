"""`python -m soak`: kills at random moments, or long use; counted over all runs of the same sources."""

from __future__ import annotations

import argparse
import random
import signal
import sys

from kindness import place
from soak import counts, report, rounds, steady


def main() -> int:
    """1 where something was not as it must be, in any run on these sources."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=0, help="processes to kill, under known events")
    parser.add_argument("--captures", type=int, default=0, help="captures of long use")
    parser.add_argument("--questions", type=int, default=0, help="questions of long use, beside them")
    parser.add_argument("--seed", type=int, default=None, help="of all that is random; another one each time")
    parser.add_argument("--report", action="store_true", help="run nothing: the counts of all runs on these sources")
    parser.add_argument(
        "--keep", action="store_true", help="run nothing: move the counts to soak/, and to the document"
    )
    arguments = parser.parse_args()
    if arguments.questions and not arguments.captures:
        parser.error("--questions are asked beside --captures")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # what was started ends with us
    ledger = counts.ledger()
    if arguments.keep:
        try:
            report.keep(ledger)
        except ValueError as error:
            parser.error(f"nothing is kept: {error}")
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, sources {place.digest()} ({place.commit()})", flush=True)
    bad = False
    if arguments.kills:
        bad |= not rounds.run(ledger, arguments.kills, seed)
    if arguments.captures:
        bad |= not steady.run(ledger, arguments.captures, arguments.questions, seed)
    print("\n".join(report.table([*ledger.rows(place.digest())])))
    for fault in report.faults(ledger.rows(place.digest())):
        print(fault)
        bad = True
    return bad


if __name__ == "__main__":
    sys.exit(main())

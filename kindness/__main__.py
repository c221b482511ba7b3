"""`python -m kindness [SHARD ...]`: captures of other people's programs, counted over all runs of the same sources."""

from __future__ import annotations

import argparse
import importlib
import random
import signal
import sys
import time
from typing import Any

from kindness import place, report
from kindness.ledger import KEPT, Ledger

SHARDS = ("storm", "cpython-3.11", "cpython-3.12", "cpython-3.13", "packages", "tools", "surroundings")
CONTROLS = ("kineto",)  # run where they are named: what they harm is known, and takes --force


def main() -> int:
    """1 where a job was harmed, of all that was ever run on these sources; but by a control."""
    parser = argparse.ArgumentParser(prog="python -m kindness", description=__doc__)
    parser.add_argument(
        "shards", nargs="*", metavar="SHARD", help=f"of {', '.join(SHARDS)}; all, if none is named; or {CONTROLS[0]}"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of a shard that goes on for as long as one likes")
    parser.add_argument("--seed", type=int, default=None, help="of all that is random; another one each time")
    parser.add_argument("--list", action="store_true", help="the shards, and what each of them is")
    parser.add_argument("--report", action="store_true", help="run nothing: the counts of all runs on these sources")
    parser.add_argument("--keep", action="store_true", help="run nothing: move the counts to kindness/kept.jsonl")
    parser.add_argument("--sources", default="", help="with --report or --keep: of other sources (their digest)")
    arguments = parser.parse_args()
    unknown = set(arguments.shards) - {*SHARDS, *CONTROLS}
    if unknown:
        parser.error(f"no shard {', '.join(sorted(unknown))}; there are {', '.join((*SHARDS, *CONTROLS))}")
    if arguments.list:
        for name in (*SHARDS, *CONTROLS):
            print(f"{name:13} {(_shard(name).__doc__ or '').splitlines()[0]}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # what was started ends with us
    # Whoever starts us in the background may ignore it, and then so would the programs, which interrupt themselves.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ledger = Ledger(place.SCRATCH, KEPT)
    if arguments.keep:
        try:
            ledger.keep(arguments.sources or place.digest())
        except ValueError as error:
            parser.error(f"nothing is kept: {error}")
    elif not arguments.report:
        _run(ledger, arguments.shards or SHARDS, arguments.minutes, arguments.seed)
    return report.show(ledger, arguments.sources or place.digest(), CONTROLS)


def _run(ledger: Ledger, names: list[str] | tuple[str, ...], minutes: float, seed: int | None) -> None:
    for name in names:
        chosen = random.SystemRandom().randrange(1 << 32) if seed is None else seed
        print(f"{name}: seed {chosen}, sources {place.digest()} ({place.commit()})", flush=True)
        _shard(name).run(ledger, time.monotonic() + 60 * minutes, chosen, name)


def _shard(name: str) -> Any:
    return importlib.import_module(f"kindness.shards.{name.partition('-')[0]}")


if __name__ == "__main__":
    sys.exit(main())

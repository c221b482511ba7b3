"""Runs one measured function in a process of its own and prints what it took, as JSON.

`python -m bench.child package.module:function '{"argument": …}'`
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time


def main() -> None:
    """Import first, then measure: start-up is not what is compared."""
    module, _, name = sys.argv[1].partition(":")
    function = getattr(importlib.import_module(module), name)
    begin, cpu = time.perf_counter(), time.process_time()
    result = function(**json.loads(sys.argv[2]))
    took = {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - cpu}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print("\nRESULT " + json.dumps({**took, "peak_bytes": peak, "result": result}))


if __name__ == "__main__":
    main()

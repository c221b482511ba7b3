"""Functions by which a program records itself: native where they can be, elsewhere without effect, and `missing` says
why.
"""

from __future__ import annotations

try:
    from profclient._recorder import (
        counter,
        instant,
        range_pop,
        range_push,
        record_alloc,
        record_backend_event,
        record_function,
        record_op,
        record_out_of_memory,
        step,
    )

    missing = ""
except ImportError as error:  # no build for this platform; a free-threaded or a second interpreter
    from profclient.stand_in import (  # type: ignore[assignment]
        counter,
        instant,
        range_pop,
        range_push,
        record_alloc,
        record_backend_event,
        record_function,
        record_op,
        record_out_of_memory,
        step,
    )

    missing = f"nothing is recorded in this process: {error}"

__all__ = [
    "counter",
    "instant",
    "missing",
    "range_pop",
    "range_push",
    "record_alloc",
    "record_backend_event",
    "record_function",
    "record_op",
    "record_out_of_memory",
    "step",
]

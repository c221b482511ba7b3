"""Conditions on a request, before anything is looked at."""

from __future__ import annotations

import math
import re
from collections import Counter

from profd.errors import BadInput
from profd.fairness.shares import Refused
from profd.limits import (
    CAPTURE_ITERATIONS_MAX,
    CAPTURE_WINDOW_MAX_NS,
    CAPTURES_ACTIVE_MAX,
    CAPTURES_ACTIVE_PER_UID_MAX,
    CAPTURES_ACTIVE_RESERVED,
    JAX_LAST_NS_MAX,
    REQUEST_ID_BYTES_MAX,
)
from profd.model.capture import Fleet, Options
from profd.trust.caller import Caller

SAMPLE_HZ_MAX = 1000.0
OVERHEAD_MIN = 0.001
TORCH_RECORDERS = ("", "auto", "observer", "profiler")
PORT_MAX = (1 << 16) - 1
COLLECT_MAX_NS = 3600 * 1_000_000_000
LAST_MIN_NS = 100_000_000
RETRY_SECONDS = 10.0
FLEET_HOSTS_MAX = 1_000_000
_FLEET_ID = re.compile(r"f[0-9a-f]{12}")
STEP_MAX = 1 << 53
START_AHEAD_MAX_NS = 3600 * 1_000_000_000
"""A window may begin this far ahead: its targets are held until then."""


def check_untrusted_options(options: Options, now_ns: int, *, open_ended: bool) -> None:
    """BadInput naming the option and what it may be."""
    _check_window(options, open_ended=open_ended)
    hz = options.sample_hz
    if hz is not None and not (math.isfinite(hz) and 0 < hz <= SAMPLE_HZ_MAX):
        raise BadInput(f"sample rate {hz:g} Hz: give one above 0 and up to {SAMPLE_HZ_MAX:g}")
    share = options.max_overhead
    if share is not None and not (math.isfinite(share) and OVERHEAD_MIN <= share <= 1):
        raise BadInput(f"max overhead {share:g}: give a share from {OVERHEAD_MIN:g} to 1 (0.02 is 2 %)")
    if not 0 <= options.port <= PORT_MAX:
        raise BadInput(f"port {options.port}: give one from 1 to {PORT_MAX}")
    if not 0 <= options.collect_timeout_ns <= COLLECT_MAX_NS:
        raise BadInput(f"collect timeout {options.collect_timeout_ns / 1e9:g} s: give up to {COLLECT_MAX_NS / 1e9:g} s")
    if options.torch not in TORCH_RECORDERS:
        raise BadInput(f"torch {options.torch!r}: give auto, observer or profiler")
    if options.start_at_ns is not None:
        if options.start_at_ns < now_ns:
            raise BadInput("the start time has passed; give one that all targets can still reach (10 s ahead)")
        if options.start_at_ns > now_ns + START_AHEAD_MAX_NS:
            raise BadInput("the start time is more than an hour ahead; ask again nearer to it")


def _check_window(options: Options, *, open_ended: bool) -> None:
    if options.duration_ns < 0 or options.duration_ns > CAPTURE_WINDOW_MAX_NS:
        longest = CAPTURE_WINDOW_MAX_NS / 1e9
        raise BadInput(
            f"duration {options.duration_ns / 1e9:g} s: give one above 0 and up to {longest:g} s; for longer, "
            "record again: a process is much the same in each window"
        )
    if not 0 <= options.iterations <= CAPTURE_ITERATIONS_MAX:
        raise BadInput(f"iterations {options.iterations}: give a number from 1 to {CAPTURE_ITERATIONS_MAX}")
    if options.duration_ns and options.iterations:
        raise BadInput("give a duration or iterations, not both")
    if not (options.duration_ns or options.iterations or open_ended):
        raise BadInput("give --duration or --iterations (or start an open-ended capture and stop it)")
    if not options.iterations and (options.begin_step is not None or options.at_least_ns):
        raise BadInput("a step to begin at needs iterations, and so does a least length of the window")
    if options.begin_step is not None and not 0 <= options.begin_step <= STEP_MAX:
        raise BadInput(f"step {options.begin_step}: give one from 0 to {STEP_MAX}")
    if not 0 <= options.at_least_ns <= CAPTURE_WINDOW_MAX_NS:
        raise BadInput(f"a window of at least {options.at_least_ns / 1e9:g} s is longer than any may be")
    if options.last_ns and not LAST_MIN_NS <= options.last_ns <= JAX_LAST_NS_MAX:
        least, most = LAST_MIN_NS / 1e9, JAX_LAST_NS_MAX / 1e9
        raise BadInput(f"last {options.last_ns / 1e9:g} s: give from {least:g} to {most:g} s")
    if options.last_ns and options.iterations:
        raise BadInput("--last keeps seconds, not iterations: give --duration, or stop it when it has happened")
    if open_ended and options.iterations:
        raise BadInput("an open-ended capture has no iterations; leave one of the two out")


def check_active(caller: Caller, live: Counter[int]) -> None:
    """Refused where as many captures run (by uid) as one user, or the host, may have."""
    own, total = live[caller.uid], live.total()
    most = CAPTURES_ACTIVE_MAX + CAPTURES_ACTIVE_RESERVED * caller.admin
    if own >= CAPTURES_ACTIVE_PER_UID_MAX and not caller.admin:
        raise Refused(
            f"{own} captures of yours are running, the most that one user may have; wait for one to end "
            "(`profctl captures`), or name several processes in one capture",
            *("captures", CAPTURES_ACTIVE_PER_UID_MAX, own, RETRY_SECONDS),
        )
    # Users who have least are not shut out by users who have most.
    fair = CAPTURES_ACTIVE_RESERVED if caller.admin else CAPTURES_ACTIVE_MAX // len({*live, caller.uid})
    if total >= most and own >= fair:
        raise Refused(
            f"{total} captures are running on this host, which takes {most}; wait for one to end",
            *("captures", most, total, RETRY_SECONDS),
        )


def check_untrusted_request_id(request_id: str) -> None:
    """BadInput if it is too long."""
    if len(request_id.encode("utf-8", "surrogatepass")) > REQUEST_ID_BYTES_MAX:
        raise BadInput(f"the request id is longer than {REQUEST_ID_BYTES_MAX} bytes")


def check_untrusted_fleet(fleet: Fleet | None) -> None:
    """BadInput if it is none that a client of ours makes up."""
    if fleet is None:
        return
    if not _FLEET_ID.fullmatch(fleet.id):
        raise BadInput(f"the fleet id {fleet.id!r}: give f and twelve hex digits")
    if not 0 < fleet.hosts <= FLEET_HOSTS_MAX:
        raise BadInput(f"a fleet of {fleet.hosts} hosts: give a number from 1 to {FLEET_HOSTS_MAX}")

"""What Prometheus sees. Labels are closed sets: never an id or a string of a user, and no pid unasked."""

from __future__ import annotations

from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from profd import __version__
from profd.model.capture import Loss, State
from profd.model.load import Load, Stretch

# Trigger latency is a poll of up to 5 s; captures are 1 s to 10 min.
_LATENCY_SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_DURATION_SECONDS: Final = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200)
# Reasons come from decoders; an unknown one must not become a new time series.
_LOSS_STAGES: Final = frozenset(("target", "streamer", "ingest", "source", "decode", "collate", "store"))
_LOSS_REASONS: Final = frozenset(
    (
        *("bad_flow_time", "bad_id", "bad_time", "dictionary_full", "malformed", "not_an_event", "too_deep"),
        *("too_large", "too_many_tracks", "truncated", "unknown_phase", "unmatched_begin", "unmatched_end"),
        *("unreadable_file", "unreadable_table", "bad_row"),
        *("malformed_metadata", "metadata_too_large", "repeated_stat", "stat_without_value"),
        *("too_many_fields", "too_many_stat_names"),
        *("arena_full", "dropped", "strings_full", "backed_off", "foreign_thread", "bad_chunk", "unreadable_chunk"),
        *("crc", "header", "version", "foreign", "journal_full", "missing"),
        *("too_many_threads", "too_many_threads_of_user"),
        *("inflate", "missing_chunks", "cupti_dropped", "cupti_late", "cupti_bad_time", "file_refused"),
        *("cuda_events_full", "cuda_event_failed"),
    )
)

# Kinds of shares and rates (fairness/) that a call can be beyond.
REFUSALS: Final = (
    *("calls", "call_rate", "ingest_calls", "ingest_call_rate", "pushed", "pushed_rate", "imports", "looks"),
    *("look_rate", "stacks_rate", "start_rate", "captures", "recorded_seconds", "jobs", "tokens", "token_rate"),
    *("connections", "unproved_calls", "unproved_messages", "small_messages", "targets_told", "answers_held"),
)
_WAIT_SECONDS: Final = (0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counters and histograms of one daemon, in a registry of its own; `observe.py` adds what is read live."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        build = Gauge("profd_build_info", "Version of the daemon; always 1.", ["version"], registry=registry)
        build.labels(__version__).set(1)
        self.captures = counter("profd_captures_total", "Targets of captures that have ended, by result.", ["result"])
        ended = "Targets of captures that have not ended as stored, by result and reason."
        self.capture_reasons = counter("profd_capture_reasons_total", ended, ["result", "reason"])
        lasted = "From the request to the terminal state of a target."
        self.capture_duration = histogram("profd_capture_duration_seconds", lasted, buckets=_DURATION_SECONDS)
        until = "From the request to the begin of the window."
        self.trigger_latency = histogram("profd_trigger_latency_seconds", until, buckets=_LATENCY_SECONDS)
        self.ingest_events = counter("profd_ingest_events_total", "Events stored, by source.", ["source"])
        dropped = "Events that existed and are in no trace."
        self.events_dropped = counter("profd_events_dropped_total", dropped, ["stage", "reason"])
        faults = "Connections to the metrics server that stalled, made no sense or failed."
        self.scrape_faults = counter("profd_scrape_faults_total", faults)
        self.rpc = counter("profd_rpcs_total", "Calls answered.", ["method", "code"])
        beyond = "Calls beyond a share of their user or the host."
        self.refusals = counter("profd_refusals_total", beyond, ["kind"])
        waits = "Wait of a job for a worker, by what it is for."
        self.worker_wait = histogram("profd_worker_wait_seconds", waits, ["kind"], buckets=_WAIT_SECONDS)
        turn = "Wait of a target for its sampler's turn to begin."
        self.sampler_wait = histogram("profd_sampler_wait_seconds", turn, buckets=_WAIT_SECONDS)
        self._loads = _Loads(registry)
        # A counter that begins at its first event has no rate of that event.
        for state in State:
            if state.terminal:
                self.captures.labels(state.label)
        for kind in REFUSALS:
            self.refusals.labels(kind)

    def count_refusal(self, kind: str, times: int = 1) -> None:
        """Calls beyond a share or rate of this kind; an unknown one is counted as `other`."""
        self.refusals.labels(kind if kind in REFUSALS else "other").inc(times)

    def count_load(self, source: str, load: Load) -> None:
        """Add what one target took of the host; nothing where its window and what came after cannot be compared."""
        if load.during is None or load.after is None:
            return
        for when, stretch in (("before", load.before), ("during", load.during), ("after", load.after)):
            if stretch is not None:
                self._loads.add(source, when, stretch)

    def count_losses(self, losses: list[Loss]) -> None:
        """Add the losses of one trace; unknown stages and reasons are counted as `other`."""
        for loss in losses:
            stage = loss.stage if loss.stage in _LOSS_STAGES else "other"
            reason = loss.reason if loss.reason in _LOSS_REASONS else "other"
            self.events_dropped.labels(stage, reason).inc(loss.count)


class _Loads:
    """What targets took of the host. No sample before there is one: what is not known is not zero."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, labelnames=["source", "when"], registry=registry)
        looked = "Time of targets that was looked at: before, during and after their windows."
        self._seconds = counter("profd_target_seconds", looked)
        self._cpu = counter("profd_target_cpu_seconds", "CPU time of targets in it, all threads together.")
        queued = "Time that their threads were ready and waited for a CPU."
        self._queued = counter("profd_target_run_queue_seconds", queued)
        switches, kinds = "Context switches of their threads: waits, and preemptions.", ["source", "when", "kind"]
        self._switches = counter("profd_target_context_switches", switches, labelnames=kinds)

    def add(self, source: str, when: str, stretch: Stretch) -> None:
        """One stretch of one target: `when` is before, during or after its window."""
        self._seconds.labels(source, when).inc(stretch.lasted_ns / 1e9)
        self._cpu.labels(source, when).inc(stretch.cpu_ns / 1e9)
        self._queued.labels(source, when).inc(stretch.run_queue_ns / 1e9)
        self._switches.labels(source, when, "wait").inc(stretch.waits)
        self._switches.labels(source, when, "preemption").inc(stretch.preemptions)

"""Samples the GPUs while processes that use them are recorded: one thread for all recordings, none in between.

A driver may hang in a call. Nobody waits for the thread then: a recording ends
with the samples that there are.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Final

from profd.gpu.gpm import Gpm
from profd.gpu.nvml import Nvml
from profd.gpu.tracks import Tracks
from profd.model.capture import Options, RawFile, Recording
from profd.targets.process import Process

SAMPLE_INTERVAL_NS: Final = 100_000_000  # ten a second: the driver's own averages are over 1/6 to 1 s
FILE: Final = "gpu-metrics.json"

log = logging.getLogger("profd.gpu")


class Sampler:
    """Of one daemon. All methods may be called from any thread."""

    def __init__(self, nvml: Nvml, interval_ns: int = SAMPLE_INTERVAL_NS) -> None:
        self._nvml = nvml
        self._interval_ns = interval_ns
        self._changed = threading.Condition()
        self._tracks: list[Tracks] = []
        self._thread: threading.Thread | None = None

    def begin(self, process: Process, options: Options) -> GpuMetrics | None:
        """Sample the GPUs of this process from now on; None where it has none, or that is not wanted. Cheap."""
        if options.no_gpu_metrics or not (process.cuda or process.gpus):
            return None
        offset = time.time_ns() - time.monotonic_ns()
        tracks = Tracks(process.id.pid, process.gpus, self._interval_ns, offset)
        with self._changed:
            self._tracks.append(tracks)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gpu-metrics", daemon=True)
                self._thread.start()
            self._changed.notify()
        return GpuMetrics(self, tracks)

    def end(self, tracks: Tracks) -> None:
        """No more samples for these."""
        with self._changed:
            if tracks in self._tracks:
                self._tracks.remove(tracks)
                self._changed.notify()

    def _run(self) -> None:
        gpm = Gpm()
        try:
            self._sample(gpm)
        except Exception:  # of a driver's binding: recordings go on, and the next one begins another thread
            log.exception("the GPUs can no longer be sampled")
            with self._changed:
                self._tracks.clear()
                self._thread = None
        self._nvml.forget(gpm)

    def _sample(self, gpm: Gpm) -> None:
        due = time.monotonic_ns()
        while self._wait_until(due):
            reading = self._nvml.read(gpm)
            with self._changed:
                for tracks in self._tracks:
                    tracks.add(reading)
                if reading.absent:
                    self._tracks.clear()
            # Of what a slow driver has made us miss nothing is made up for.
            due = max(due + self._interval_ns, time.monotonic_ns())

    def _wait_until(self, due_ns: int) -> bool:
        """Whether somebody still wants the sample that is due then; if not, the thread is over."""
        with self._changed:
            while self._tracks and (left := due_ns - time.monotonic_ns()) > 0:
                self._changed.wait(left / 1e9)
            if not self._tracks:
                self._thread = None
            return bool(self._tracks)


class GpuMetrics:
    """The samples of one recording until it ends; see capture/ports.py."""

    def __init__(self, sampler: Sampler, tracks: Tracks) -> None:
        self._sampler = sampler
        self._tracks = tracks

    def finish(self, recording: Recording, directory: Path) -> None:
        """End sampling and add what fell into the recording to its files. Writes a file: called in a thread."""
        self._sampler.end(self._tracks)
        if not recording.files:
            return
        pieces = self._tracks.chrome(recording.start_ns, recording.end_ns)
        if pieces is None:
            why = self._tracks.absent or "the driver gave no answer while it was recorded"
            recording.warnings.append(f"no GPU metrics: {why}")
            return
        path = directory / FILE
        try:
            with path.open("wb") as file:
                file.writelines(pieces)
        except OSError as error:
            recording.warnings.append(f"no GPU metrics: they could not be written ({error.strerror})")
            return
        recording.files.append(RawFile(str(path), "chrome"))

    def drop(self) -> None:
        """End sampling, whatever becomes of the recording."""
        self._sampler.end(self._tracks)

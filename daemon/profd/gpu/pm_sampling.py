"""Hardware counters of whole GPUs beside a recording: opt-in, because the GPU's clocks are held while they are sampled.

A sampler is a process of its own (pm_sampler.py). It holds the lease of its
GPU from before it starts until it has ended; a second capture on the same GPU
goes without. Its clock is the GPU's: samples are placed by when they arrived,
and how far off that may be is in the file.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from profd.gpu.checks import Check
from profd.gpu.holders import Holder, HolderKind
from profd.gpu.lease_keeper import LeaseKeeper
from profd.gpu.leases import GpuId, Held, Lease
from profd.gpu.pm_sampler import OLDEST, PACKAGE
from profd.gpu.sidecar import BeginSidecar, Sidecar
from profd.limits import PM_LINE_BYTES_MAX, PM_SAMPLES_MAX
from profd.model.capture import Loss, Options, RawFile, Recording
from profd.targets.process import Process

METRICS: Final = (
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)
COLLECTOR: Final = "cupti.pm_sampling:Collector"
END_SECONDS: Final = 10.0  # for a sampler to let go of the counters; after that it is killed
FILE: Final = "gpu-counters.json"
HEADER_KEY: Final = "profd_pm_sampling"


class PmState(StrEnum):
    """Why counters were not sampled: the codes of pm_sampler."""

    NO_PACKAGE = "no_package"
    OLD_PACKAGE = "old_package"
    NO_DRIVER = "no_driver"
    NO_PRIVILEGE = "no_privilege"
    NO_NVPERF = "no_nvperf"
    HELD = "held"
    NOT_THIS_GPU = "not_this_gpu"
    FAILED = "failed"


_SENTENCES: Final = {
    PmState.NO_PACKAGE: "cupti-python is not installed where profd runs: pip install cupti-python there",
    PmState.OLD_PACKAGE: "cupti-python 13.3 or later is needed: pip install -U cupti-python",
    PmState.NO_DRIVER: "there is no CUDA driver where profd runs: mount libcuda.so.1 of the host's",
    PmState.NO_PRIVILEGE: (
        "only administrators may read hardware counters: run profd as root, or load the driver with "
        "NVreg_RestrictProfilingToAdminUsers=0"
    ),
    PmState.NO_NVPERF: "libnvperf_host.so is not found: put the folder of libcupti on profd's LD_LIBRARY_PATH",
    PmState.HELD: "another tool samples this GPU: stop it (DCGM: dcgmi profile --pause)",
    PmState.NOT_THIS_GPU: "this GPU cannot sample these counters (MIG, a virtual GPU, or older than Turing)",
    PmState.FAILED: "CUPTI failed",
}

_NOT_WANTED: Final = "--no-gpu-metrics leaves them out, too"
_NO_GPU_SEEN: Final = "profd sees no GPU that the process holds (/dev/nvidia*)"


@dataclass(slots=True)
class Counters:
    """The words of one sampler. Written by its reader's thread alone."""

    samples: list[tuple[int, int, list[float]]] = field(default_factory=list)  # start, end by the GPU; values
    offset_ns: int | None = None  # of CLOCK_REALTIME from the GPU's clock: at most that
    dropped: int = 0
    why: str = ""  # there is nothing, as a sentence

    def take_untrusted(self, line: bytes) -> None:
        """One line. A word that no sampler of ours says is its end: ValueError, TypeError, KeyError, RecursionError."""
        try:
            self._take(json.loads(line))
        except OverflowError as error:  # of Infinity as an integer, and of an integer as a float
            raise ValueError("a number that no sampler counts to") from error

    def _take(self, message: Any) -> None:
        if not isinstance(message, dict):
            raise ValueError("a line that is no object")
        if "error" in message:
            code = str(message["error"])
            state = PmState(code) if code in PmState.__members__.values() else PmState.FAILED
            self.why = f"{_SENTENCES[state]} ({str(message.get('text', ''))[:200]})"
        for start, end, values in message.get("samples", ()):
            if len(self.samples) >= PM_SAMPLES_MAX:
                self.dropped += 1
                continue
            self.samples.append((int(start), int(end), [float(value) for value in values]))
            # It had ended before it was decoded: the least difference is nearest to the truth.
            ahead = int(message["now"]) - int(end)
            self.offset_ns = ahead if self.offset_ns is None else min(self.offset_ns, ahead)

    def chrome(self, track: str, metrics: Sequence[str], interval_ns: int, start_ns: int, end_ns: int) -> bytes | None:
        """The samples within these Unix times as a trace file; None where there are none."""
        offset = self.offset_ns or 0
        chosen = [(offset + end, values) for _, end, values in self.samples if start_ns <= offset + end <= end_ns]
        if not chosen:
            return None
        head = {"interval_ns": interval_ns, "clock": "placed by arrival", "locked_clocks": True, "metrics": [*metrics]}
        events = ",\n".join(
            json.dumps({"ph": "C", "cat": "gpu_metric", "name": name, "pid": track, "args": {"value": value}})[:-1]
            + f', "ts": {time_ns // 1000}.{time_ns % 1000:03d}}}'
            for time_ns, values in chosen
            for name, value in zip(metrics, values, strict=False)
        )
        return f'{{"{HEADER_KEY}": {json.dumps(head)}, "traceEvents": [\n{events}\n]}}\n'.encode()


def check(interval_us: int) -> Check:
    """For the doctor: whether counters are sampled, and what is missing if they cannot be. Touches no GPU."""
    if not interval_us:
        return Check("ok", "off (gpu.pm_sampling_us): it holds the clocks of the GPUs that are sampled")
    try:
        found = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return _missing(PmState.NO_PACKAGE)
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST:
        return _missing(PmState.OLD_PACKAGE)
    return Check("ok", f"every {interval_us} us, while processes with GPUs are recorded ({PACKAGE} {found})")


def _missing(state: PmState) -> Check:
    problem, _, fix = _SENTENCES[state].partition(": ")
    return Check("warning", problem, fix)


class PmSampling:
    """Of one daemon. `begin` is called on the event loop's thread."""

    def __init__(self, leases: LeaseKeeper, interval_ns: int, collector: str = COLLECTOR) -> None:
        self._leases = leases
        self._interval_ns = interval_ns
        self._collector = collector

    def risk(self, process: Process, options: Options) -> str:
        """The meaning of `begin` for every user of its GPUs, as a sentence; empty where it would do nothing."""
        if options.no_gpu_metrics or not process.gpus:
            return ""
        gpus = ", ".join(map(str, sorted(process.gpus)))
        return f"counters of GPU {gpus} are sampled, which holds its clocks for everybody: --no-gpu-metrics spares it"

    def begin(self, process: Process, options: Options) -> Sidecar | None:
        """Sample the GPUs of this process. Of one that uses CUDA it is said why they are not; of others None."""
        if options.no_gpu_metrics or not process.gpus:
            why = _NOT_WANTED if options.no_gpu_metrics else _NO_GPU_SEEN
            return _NotSampled(why) if process.cuda or process.gpus else None
        return PmRecording([self._sampler(gpu, process) for gpu in process.gpus], self._interval_ns)

    def _sampler(self, gpu: int, process: Process) -> _CounterSampler:
        holder = Holder(HolderKind.PROFD, name=f"profd, for pid {process.id.pid}")
        try:
            lease = self._leases.take(GpuId(f"/dev/nvidia{gpu}"), holder)
        except Held as error:
            return _CounterSampler(gpu, None, self._leases, why=str(error))
        order = {
            "device": gpu,
            "interval_ns": self._interval_ns,
            "metrics": METRICS,
            "collector": self._collector,
        }
        self._leases.arm(lease)
        sampler = _CounterSampler(gpu, lease, self._leases)
        sampler.start(json.dumps(order))
        return sampler


class _NotSampled:
    """No counters beside a recording, which says why."""

    def __init__(self, why: str) -> None:
        self._why = why

    def finish(self, recording: Recording, directory: Path) -> None:
        """Add the sentence to what was recorded."""
        if recording.files:
            recording.warnings.append(f"no hardware counters (gpu.pm_sampling_us): {self._why}")

    def drop(self) -> None:
        """Nothing runs."""


class PmRecording:
    """The counters beside one recording; see capture/ports.py."""

    def __init__(self, samplers: Sequence[_CounterSampler], interval_ns: int) -> None:
        self._samplers = samplers
        self._interval_ns = interval_ns

    def finish(self, recording: Recording, directory: Path) -> None:
        """End sampling and add what fell into the recording to its files. Blocks: called in a thread."""
        for sampler in self._samplers:
            sampler.end()
        if recording.files:
            for sampler in self._samplers:
                self._add(sampler, recording, directory)

    def drop(self) -> None:
        """End sampling, whatever becomes of the recording."""
        for sampler in self._samplers:
            sampler.kill()

    def _add(self, sampler: _CounterSampler, recording: Recording, directory: Path) -> None:
        counters, gpu = sampler.counters, sampler.gpu
        lowest, highest = recording.start_ns or 0, recording.end_ns or 1 << 62
        text = counters.chrome(f"GPU {gpu}", METRICS, self._interval_ns, lowest, highest)
        if counters.dropped:
            recording.lost.append(Loss("source", "pm_samples", counters.dropped))
        if text is None:
            recording.warnings.append(f"no counters of GPU {gpu}: {counters.why or 'there were no samples'}")
            return
        recording.warnings.append(
            f"the counters of GPU {gpu} were sampled: that held its clocks, so kernels took other times than without"
        )
        path = directory / f"{gpu}-{FILE}"
        try:
            path.write_bytes(text)
        except OSError as error:
            recording.warnings.append(f"no counters of GPU {gpu}: they could not be written ({error.strerror})")
            return
        recording.files.append(RawFile(str(path), "chrome"))


class _CounterSampler:
    """One sampler's process, and the thread that reads what it says. `lease` None: it was refused."""

    def __init__(self, gpu: int, lease: Lease | None, leases: LeaseKeeper, why: str = "") -> None:
        self.gpu = gpu
        self.counters = Counters(why=why)
        self._lease = lease
        self._leases = leases
        self._loop = asyncio.get_running_loop()
        self._child: subprocess.Popen[bytes] | None = None
        self._ending = threading.Lock()  # of the three below: it may have to end before it has begun
        self._asked = self._killed = False
        self._thread: threading.Thread | None = None

    def start(self, order: str) -> None:
        """Never waits: the process is made by the thread that reads it."""
        thread = threading.Thread(target=self._run, args=(order,), name="pm-sampling", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self.counters.why = f"its sampler could not be started: {error}"
            self._free()
        else:
            self._thread = thread

    def end(self) -> None:
        """Ask it to end and wait until it has."""
        if self._thread is None:
            return
        with self._ending:
            self._asked = True
            self._obey()
        self._thread.join(END_SECONDS)
        if self._thread.is_alive():
            self.counters.why = self.counters.why or f"its sampler did not end within {END_SECONDS:g} s and was killed"
            self.kill()
            self._thread.join(END_SECONDS)

    def kill(self) -> None:
        """Now; its thread frees the lease when it has ended."""
        with self._ending:
            self._killed = True
            self._obey()

    def _obey(self) -> None:
        child = self._child
        if child is None:
            return
        if self._asked and child.stdin is not None:
            child.stdin.close()
        if self._killed and child.poll() is None:
            child.kill()

    def _run(self, order: str) -> None:
        try:
            command = [sys.executable, "-P", "-m", "profd.gpu.pm_sampler", order]
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment()
            ) as child:
                with self._ending:
                    self._child = child
                    self._obey()
                self._read(child)
        except OSError as error:
            self.counters.why = f"the sampler could not be started: {error.strerror}"
        finally:
            self._loop.call_soon_threadsafe(self._free)

    def _read(self, child: subprocess.Popen[bytes]) -> None:
        while child.stdout is not None and (line := child.stdout.readline(PM_LINE_BYTES_MAX)):
            try:
                self.counters.take_untrusted(line)
            except (ValueError, TypeError, KeyError, RecursionError):
                self.counters.why = self.counters.why or "the sampler said what it should not"
                child.kill()
                return
            self._loop.call_soon_threadsafe(self._renew)

    def _renew(self) -> None:
        if self._lease is not None:
            self._leases.renew(self._lease)

    def _free(self) -> None:
        """Its process has ended, and with it the session: the kernel takes the counters back."""
        if self._lease is not None:
            self._leases.clear(self._lease.subject, self._lease.epoch)
            self._leases.end(self._lease)


class _Both:
    """Two things beside one recording."""

    def __init__(self, parts: Sequence[Sidecar]) -> None:
        self._parts = parts

    def finish(self, recording: Recording, directory: Path) -> None:
        """Each in turn."""
        for part in self._parts:
            part.finish(recording, directory)

    def drop(self) -> None:
        """Each in turn."""
        for part in self._parts:
            part.drop()


def both(first: BeginSidecar, second: BeginSidecar) -> BeginSidecar:
    """Begin two things beside each recording."""

    def begin(process: Process, options: Options) -> Sidecar | None:
        parts = [part for part in (first(process, options), second(process, options)) if part is not None]
        return _Both(parts) if parts else None

    return begin


def _environment() -> dict[str, str]:
    # CUDA numbers devices as /dev/nvidiaN does only in this order, and where none are hidden.
    environment = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    return environment

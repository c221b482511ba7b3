"""The thread that samples: there while somebody wants samples, and waited for by nobody."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from profd.gpu.gpm import Gpm
from profd.gpu.readings import Gpu, Reading
from profd.gpu.sampling import FILE, GpuMetrics, Sampler
from profd.model.capture import Options, RawFile, Recording
from profd.targets.process import Process, ProcessId

from tests.support.waiting import until

WAIT_SECONDS = 60.0


class Driver:
    """In place of Nvml: a GPU a reading, or no answer while `hangs` is set."""

    def __init__(self, absent: str = "") -> None:
        self.read_times = 0
        self.forgotten = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._absent = absent

    def read(self, gpm: Gpm | None = None) -> Reading:
        assert self.may_answer.wait(WAIT_SECONDS)
        self.read_times += 1
        if self._absent:
            return Reading(absent=self._absent)
        return Reading((Gpu(0, "GPU-a", "H100", taken_ns=self.read_times, power_watts=float(self.read_times)),))

    def forget(self, gpm: Gpm) -> None:
        self.forgotten.set()


def process(**values: object) -> Process:
    return Process(ProcessId(4711, 1), 1, 0, 0, "root", "python", **{"cuda": True, **values})  # type: ignore[arg-type]


def begun(driver: Driver) -> tuple[Sampler, GpuMetrics]:
    sampler = Sampler(driver, interval_ns=1)  # type: ignore[arg-type]  # what it uses of Nvml
    metrics = sampler.begin(process(), Options())
    assert metrics is not None
    return sampler, metrics


def recorded(tmp_path: Path) -> Recording:
    return Recording(files=[RawFile(str(tmp_path / "trace"), "chunks")])


def test_a_recording_gets_its_samples_and_the_thread_ends(tmp_path: Path) -> None:
    driver = Driver()
    sampler, metrics = begun(driver)
    until(lambda: driver.read_times > 2, "samples were taken")
    other = sampler.begin(process(), Options())
    assert other is not None
    recording = recorded(tmp_path)
    metrics.finish(recording, tmp_path)
    assert recording.files[1:] == [RawFile(str(tmp_path / FILE), "chrome")]
    assert len(json.loads((tmp_path / FILE).read_bytes())["traceEvents"]) > 1
    assert not driver.forgotten.is_set()  # somebody else still wants them
    other.drop()
    other.drop()
    assert driver.forgotten.wait(WAIT_SECONDS)


def test_nobody_waits_for_a_driver_that_hangs(tmp_path: Path) -> None:
    driver = Driver()
    driver.may_answer.clear()
    _, metrics = begun(driver)
    recording = recorded(tmp_path)
    metrics.finish(recording, tmp_path)
    assert recording.warnings == ["no GPU metrics: the driver gave no answer while it was recorded"]
    assert len(recording.files) == 1
    driver.may_answer.set()
    assert driver.forgotten.wait(WAIT_SECONDS)


def test_a_sampler_begins_again_after_a_rest(tmp_path: Path) -> None:
    driver = Driver()
    sampler, metrics = begun(driver)
    metrics.drop()
    assert driver.forgotten.wait(WAIT_SECONDS)
    seen = driver.read_times
    again = sampler.begin(process(), Options())
    assert again is not None
    until(lambda: driver.read_times > seen, "samples are taken again")
    again.drop()


def test_no_driver_is_said_and_asked_once(tmp_path: Path) -> None:
    driver = Driver("no NVIDIA driver answers (Driver Not Loaded)")
    _, metrics = begun(driver)
    assert driver.forgotten.wait(WAIT_SECONDS)
    recording = recorded(tmp_path)
    metrics.finish(recording, tmp_path)
    assert recording.warnings == ["no GPU metrics: no NVIDIA driver answers (Driver Not Loaded)"]
    assert driver.read_times == 1


def test_a_binding_that_fails_ends_samples_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    with monkeypatch.context() as broken:
        broken.setattr(driver, "read", lambda gpm: driver.no_such_question)  # type: ignore[attr-defined]
        sampler, metrics = begun(driver)
        assert driver.forgotten.wait(WAIT_SECONDS)
    recording = recorded(tmp_path)
    metrics.finish(recording, tmp_path)
    assert recording.warnings == ["no GPU metrics: the driver gave no answer while it was recorded"]
    again = sampler.begin(process(), Options())
    assert again is not None
    until(lambda: driver.read_times > 0, "samples are taken again")
    again.drop()


def test_a_recording_without_files_gets_none(tmp_path: Path) -> None:
    driver = Driver()
    _, metrics = begun(driver)
    until(lambda: driver.read_times > 0, "a sample was taken")
    recording = Recording()
    metrics.finish(recording, tmp_path)
    assert (recording.files, recording.warnings) == ([], [])


@pytest.mark.parametrize(
    ("target", "options"),
    [(process(cuda=False), Options()), (process(gpus=(0,)), Options(no_gpu_metrics=True))],
)
def test_not_wanted(target: Process, options: Options) -> None:
    assert Sampler(Driver()).begin(target, options) is None  # type: ignore[arg-type]  # never asked


def test_a_disk_that_is_full_is_told(tmp_path: Path) -> None:
    driver = Driver()
    _, metrics = begun(driver)
    until(lambda: driver.read_times > 0, "a sample was taken")
    recording = recorded(tmp_path)
    metrics.finish(recording, tmp_path / "gone")
    assert recording.warnings == ["no GPU metrics: they could not be written (No such file or directory)"]

"""The driver is a library of our own, loaded by the real nvidia-ml-py in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from profd.gpu.nvml import PROCESSES_MAX

FAKE = Path(__file__).parents[3] / "support" / "fake_nvml.c"

READ = """
import dataclasses, json
from profd.gpu.nvml import Nvml
nvml = Nvml()
reading = nvml.read()
nvml.close()
print(json.dumps(dataclasses.asdict(reading), default=sorted))
"""

# What GPM says of three readings by one asker, what another hears, how many samples are held meanwhile and after.
COUNTED = """
import ctypes, json
from profd.gpu.gpm import Gpm
from profd.gpu.nvml import Nvml
fake = ctypes.CDLL("libnvidia-ml.so.1")
nvml, gpm, other = Nvml(), Gpm(), Gpm()
heard = [[gpu.gpm for gpu in nvml.read(gpm).gpus] for _ in range(3)]
once = [gpu.gpm for gpu in nvml.read(other).gpus]
held = fake.fake_gpm_held()
nvml.forget(gpm), nvml.forget(other)
print(json.dumps([heard, once, held, fake.fake_gpm_held()]))
"""

SCRAPE = """
import os
from prometheus_client import CollectorRegistry, generate_latest
from profd.gpu.gauges import GpuGauges
from profd.gpu.nvml import Nvml
registry = CollectorRegistry()
registry.register(GpuGauges(Nvml(), processes=bool(os.environ.get('TELL_PROCESSES'))))
generate_latest(registry)  # GPM tells of the time between two scrapes
print(generate_latest(registry).decode())
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-in for the driver")
    folder = tmp_path_factory.mktemp("nvml")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, FAKE], check=True)
    return folder


def ran(program, driver=None, **variables):
    environ = {**os.environ, **variables}
    if driver is not None:
        environ["LD_LIBRARY_PATH"] = str(driver)
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    return done.stdout


def test_values_in_base_units(driver):
    reading = json.loads(ran(READ, driver))
    assert reading["driver"] == "580.65.06"
    first, second = reading["gpus"]
    assert first.pop("taken_ns") > 0
    assert first.pop("error_ns") > 0
    assert first == {
        "index": 0,
        "uuid": "GPU-a",
        "name": "Fake H100",
        "mig": None,
        "minor": 0,
        "gpm": {},
        "processes": {},
        "busy_ratio": 0.75,
        "memory_busy_ratio": 0.2,
        "memory_used_bytes": 20 << 30,
        "memory_total_bytes": 80 << 30,
        "sm_clock_hertz": 1980e6,
        "memory_clock_hertz": 2619e6,
        "power_watts": 350.5,
        "temperature_celsius": 61.0,
        "throttled": ["hw_thermal", "sw_power_cap"],
    }
    # Not supported is absent, not zero; an idle GPU is not throttled.
    assert second["power_watts"] is None
    assert second["throttled"] == []


def test_a_lost_gpu_is_named_and_the_other_is_read(driver):
    reading = json.loads(ran(READ, driver, FAKE_NVML_LOST="1"))
    assert [gpu["index"] for gpu in reading["gpus"]] == [0]
    assert reading["lost"] == {"1": "GPU is lost"}


def test_a_driver_that_is_not_loaded_is_told(driver):
    reading = json.loads(ran(READ, driver, FAKE_NVML_NO_DRIVER="1"))
    assert reading["gpus"] == []
    assert reading["absent"] == "no NVIDIA driver answers (Driver Not Loaded)"


def test_a_driver_that_hangs_holds_one_thread_and_no_more(driver):
    program = """
from profd.gpu import nvml
nvml.TURN_SECONDS = 0.01
asked = nvml.Nvml()
with asked._lock:  # as a question that is never answered
    print(asked.read().absent)
print(asked.read().absent == "")
"""
    assert ran(program, driver).splitlines() == [
        "the NVIDIA driver has left a question without an answer for 0.01 s",
        "True",
    ]


def test_gauges(driver):
    lines = ran(SCRAPE, driver).splitlines()
    assert 'profd_gpu_busy_ratio{gpu="0",mig="",uuid="GPU-a"} 0.75' in lines
    assert 'profd_gpu_power_watts{gpu="0",mig="",uuid="GPU-a"} 350.5' in lines
    assert not any(line.startswith('profd_gpu_power_watts{gpu="1"') for line in lines)
    assert 'profd_gpu_throttled{gpu="0",mig="",reason="hw_thermal",uuid="GPU-a"} 1.0' in lines
    assert 'profd_gpu_throttled{gpu="1",mig="",reason="hw_thermal",uuid="GPU-b"} 0.0' in lines
    assert 'profd_gpu_readable{gpu="1"} 1.0' in lines


def test_no_gauges_without_a_driver(driver):
    assert "profd_gpu" not in ran(SCRAPE, driver, FAKE_NVML_NO_DRIVER="1")


@pytest.mark.parametrize("when", ["1", "late"])
def test_a_lost_gpu_is_a_gauge(driver, when):
    lines = ran(SCRAPE, driver, FAKE_NVML_LOST=when).splitlines()
    assert [line for line in lines if 'profd_gpu_readable{gpu="1"}' in line] == ['profd_gpu_readable{gpu="1"} 0.0']
    assert not any('uuid="GPU-b"' in line for line in lines)


def test_gpm_tells_of_the_time_between_two_questions_of_one_asker(driver):
    (first, second, third), once, held, left = json.loads(ran(COUNTED, driver))
    assert (first, once) == ([{}, {}], [{}, {}])
    assert second == third
    counted, older = second
    assert older == {}  # a GPU without GPM
    assert counted["sm_active_ratio"] == 0.02
    assert counted["pcie_sent_bytes_per_second"] == 2 << 20
    assert "fp64_active_ratio" not in counted  # the driver does not say
    assert "memory_bandwidth_ratio" not in counted  # it says that it is no number
    assert (held, left) == (2, 0)


def test_gpm_for_administrators_only_is_absent(driver):
    assert "sm_active_ratio{" not in ran(SCRAPE, driver, FAKE_NVML_NO_GPM="1")
    heard, once, held, left = json.loads(ran(COUNTED, driver, FAKE_NVML_NO_GPM="1"))
    assert (heard, once, held, left) == ([[{}, {}]] * 3, [{}, {}], 0, 0)


def test_an_instance_of_mig_is_told_apart(driver):
    reading = json.loads(ran(READ, driver, FAKE_NVML_MIG="1"))
    places = [(gpu["index"], gpu["mig"], gpu["uuid"]) for gpu in reading["gpus"]]
    assert places == [(0, None, "GPU-a"), (1, None, "GPU-b"), (1, 1, "MIG-b1")]
    instance = reading["gpus"][2]
    assert (instance["memory_used_bytes"], instance["busy_ratio"], instance["minor"]) == (4 << 30, None, 1)
    lines = ran(SCRAPE, driver, FAKE_NVML_MIG="1").splitlines()
    assert 'profd_gpu_memory_used_bytes{gpu="1",mig="1",uuid="MIG-b1"} 4.294967296e+09' in lines
    assert any(line.startswith('profd_gpu_sm_active_ratio{gpu="1",mig="1"') for line in lines)
    assert not any(line.startswith('profd_gpu_busy_ratio{gpu="1",mig="1"') for line in lines)
    assert sum(line.startswith('profd_gpu_readable{gpu="1"}') for line in lines) == 1


def test_memory_of_each_process(driver, tmp_path):
    pids = tmp_path / "pids"
    pids.write_text("".join(f"{pid}\n" for pid in range(100, 400)))  # more than are told
    first, second = json.loads(ran(READ, driver, FAKE_NVML_PIDS=str(pids)))["gpus"]
    assert first["processes"] == {str(pid): 3 << 30 for pid in range(100, 100 + PROCESSES_MAX)}
    assert second["processes"] == {}
    pids.write_text("4711")
    assert "process_memory" not in ran(SCRAPE, driver, FAKE_NVML_PIDS=str(pids))
    lines = ran(SCRAPE, driver, FAKE_NVML_PIDS=str(pids), TELL_PROCESSES="1").splitlines()
    [line] = [line for line in lines if line.startswith("profd_gpu_process_memory_used_bytes{")]
    assert line.startswith('profd_gpu_process_memory_used_bytes{gpu="0",mig="",pid="4711",uuid="GPU-a"} 3.2')

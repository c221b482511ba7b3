"""The driver is a library of our own, loaded by the real nvidia-ml-py in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FAKE = Path(__file__).parents[3] / "support" / "fake_nvml.c"

READ = """
import dataclasses, json
from profd.gpu.nvml import Nvml
nvml = Nvml()
reading = nvml.read()
nvml.close()
print(json.dumps(dataclasses.asdict(reading), default=sorted))
"""

SCRAPE = """
from prometheus_client import CollectorRegistry, generate_latest
from profd.gpu.gauges import GpuGauges
from profd.gpu.nvml import Nvml
registry = CollectorRegistry()
registry.register(GpuGauges(Nvml()))
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
    assert first == {
        "index": 0,
        "uuid": "GPU-a",
        "name": "Fake H100",
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


def test_gauges(driver):
    lines = ran(SCRAPE, driver).splitlines()
    assert 'profd_gpu_busy_ratio{gpu="0",uuid="GPU-a"} 0.75' in lines
    assert 'profd_gpu_power_watts{gpu="0",uuid="GPU-a"} 350.5' in lines
    assert not any(line.startswith('profd_gpu_power_watts{gpu="1"') for line in lines)
    assert 'profd_gpu_throttled{gpu="0",reason="hw_thermal",uuid="GPU-a"} 1.0' in lines
    assert 'profd_gpu_throttled{gpu="1",reason="hw_thermal",uuid="GPU-b"} 0.0' in lines
    assert 'profd_gpu_readable{gpu="1"} 1.0' in lines


def test_no_gauges_without_a_driver(driver):
    assert "profd_gpu" not in ran(SCRAPE, driver, FAKE_NVML_NO_DRIVER="1")


def test_a_lost_gpu_is_a_gauge(driver):
    lines = ran(SCRAPE, driver, FAKE_NVML_LOST="1").splitlines()
    assert 'profd_gpu_readable{gpu="1"} 0.0' in lines
    assert not any('uuid="GPU-b"' in line for line in lines)

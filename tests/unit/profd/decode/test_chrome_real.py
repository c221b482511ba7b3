"""Real traces: nothing lost, counts as a plain JSON reader counts them."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from profd.decode.chrome import open_chrome
from profd.events import DeviceType, Kind

FILES = (
    "amd_minitoy",
    "cuda_alexnet",
    "cuda_diff_control",
    "cuda_diff_test",
    "cuda_event_sync",
    "cuda_train_rank0",
    "cuda_triton",
    "ddp_rank0",
    "ddp_rank1",
    "mtia_inference",
    "resnet50_workers0",
)


@pytest.mark.parametrize("name", FILES)
def test_counts(name: str, trace_data: Path) -> None:
    path = trace_data / f"{name}.json.gz"
    with gzip.open(path) as text:
        events = msgspec.json.decode(text.read())["traceEvents"]
    phases = Counter(event["ph"] for event in events)
    with path.open("rb") as file:
        decoder = open_chrome(file)
        batches = list(decoder.batches())
    assert decoder.findings.lost == {}
    assert decoder.findings.truncated == ""
    assert sum(len(batch.events) for batch in batches) == phases["X"] + phases["i"]
    assert sum(len(batch.flows.id) for batch in batches if batch.flows is not None) == phases["s"] + phases["f"]

    kinds: Counter[int] = Counter()
    devices: Counter[int] = Counter()
    for batch in batches:
        kinds.update(batch.events.columns["kind"].tolist())
        devices.update(batch.events.columns["device_type"].tolist())
    cats = Counter(str(event.get("cat")).lower() for event in events if event["ph"] == "X")
    assert kinds[Kind.CPU_OP] == cats["cpu_op"] + cats["operator"]
    assert kinds[Kind.KERNEL] == cats["kernel"]
    assert kinds[Kind.RUNTIME] == cats["cuda_runtime"] + cats["runtime"] + cats["mtia_runtime"]
    accelerator = {"amd_minitoy": DeviceType.HIP, "mtia_inference": DeviceType.MTIA}.get(name, DeviceType.CUDA)
    assert devices[accelerator] >= cats["kernel"] + cats["mtia_ccp_events"] > 0


def test_memory_events_of_2021(trace_data: Path) -> None:
    with (trace_data / "resnet50_workers0.json.gz").open("rb") as file:
        batches = list(open_chrome(file).batches())
    memory = sum(int((batch.events.columns["kind"] == Kind.MEMORY).sum()) for batch in batches)
    assert memory > 1000

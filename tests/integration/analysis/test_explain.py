"""`explain` on real programs and on traces of real GPUs: planted troubles come first, and clean ones are left in peace.

GPU detectors are tried on others' traces, and on such with a trouble written into them; of live jobs on a GPU:
test_planted_traces.py.
"""

from __future__ import annotations

import copy
import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from profd.answers.explain import explain
from profd.segments.reader import TraceReader

from tests.corpus.answers.explained_programs import CLEAN, TROUBLES
from tests.support.importing import import_trace

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("explain")]

ROOT = Path(__file__).resolve().parents[3]
PROGRAM_SECONDS = 400
REAL = {  # what was read off these traces by eye: the only findings that may be named, causes in order
    "amd_minitoy": [],
    "cuda_alexnet": [],
    "cuda_diff_control": ["exposed-communication", "exposed-copies", "host-bound"],
    "cuda_diff_test": ["exposed-communication"],
    "cuda_event_sync": [],
    "cuda_train_rank0": [],
    "cuda_triton": [],
    "ddp_rank0": ["exposed-communication", "host-bound"],
    "ddp_rank1": ["exposed-communication", "host-bound"],
    "mtia_inference": [],
    "resnet50_workers0": ["data-loading", "host-bound"],
}
Document = dict[str, Any]


def found(trace: Path) -> list[str]:
    return [one["id"] for one in explain(TraceReader(trace))["findings"]]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """The findings of a program, all of which ran once."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("programs")
    subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.corpus.answers.explained_programs",
            str(folder),
            *TROUBLES,
            *CLEAN,
        ],
        cwd=ROOT,
        timeout=PROGRAM_SECONDS,
        capture_output=True,
        check=True,
    )

    def ask(name: str) -> list[str]:
        import_trace(folder / f"{name}.json", folder / name)
        return found(folder / name)

    return ask


@pytest.mark.parametrize("name", TROUBLES)
def test_a_planted_trouble_comes_first(name: str, programs: Callable[[str], list[str]]) -> None:
    assert programs(name)[:1] == [TROUBLES[name]]


def test_clean_programs_have_at_most_one_alarm_in_ten(programs: Callable[[str], list[str]]) -> None:
    """24 programs, on a machine that may be busy."""
    alarms = {name: ids for name in CLEAN if (ids := programs(name))}
    assert sum(map(len, alarms.values())) <= len(CLEAN) // 10, alarms


@pytest.fixture
def document(trace_data: Path) -> Callable[[str], Document]:
    def load(name: str) -> Document:
        file = trace_data / f"{name}.json.gz"
        if not file.exists():
            pytest.skip(f"no {file}")
        loaded: Document = json.loads(gzip.decompress(file.read_bytes()).decode("utf-8", "replace"), strict=False)
        return loaded

    return load


def ask(document: Document, folder: Path) -> list[str]:
    file = folder / "edited.json"
    file.write_text(json.dumps(document))
    import_trace(file, folder / "edited")
    return found(folder / "edited")


@pytest.mark.parametrize("name", REAL)
def test_traces_of_real_gpus(name: str, document: Callable[[str], Document], tmp_path: Path) -> None:
    assert ask(document(name), tmp_path) == REAL[name]


STEP_US = 95_000  # of cuda_train_rank0, which is clean: its device idles for 1 % of the measured steps
AT = 0.5  # of each step: where a trouble is written in


def stretched(document: Document, by_us: float, what: Callable[[float], list[Document]]) -> Document:
    """Every measured step is `by_us` longer in its middle, where `what` happens on the thread of the steps.

    What began before the middle and lasts beyond it is longer; what began later is later.
    """
    events = document["traceEvents"]
    steps = sorted(
        (event for event in events if str(event.get("name", "")).startswith("ProfilerStep#") and event["ph"] == "X"),
        key=lambda event: event["ts"],
    )
    steps = [event for event in steps if event["cat"] == "user_annotation"]
    cuts = [quiet_moment(events, step["ts"] + AT * step["dur"]) for step in steps[1:]]
    edited = []
    for event in copy.deepcopy(events):
        if "ts" in event:
            first, last = event["ts"], event["ts"] + event.get("dur", 0)
            event["ts"] += by_us * sum(cut <= first for cut in cuts)
            if "dur" in event:
                event["dur"] += by_us * sum(first < cut < last for cut in cuts)
        edited.append(event)
    host = {key: steps[0][key] for key in ("pid", "tid")}
    for number, cut in enumerate(cuts):
        edited += [{"ph": "X", **host, **event} for event in what(cut + number * by_us)]
    return {**document, "traceEvents": edited}


def quiet_moment(events: list[Document], near: float) -> float:
    """The end of the first kernel behind a moment beyond which the device has nothing to do for a while."""
    work = sorted(
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and event["ph"] == "X"
    )
    reached = 0.0
    for start, end in work:
        if start > near and start > reached:
            return (reached + start) / 2 if reached else start
        reached = max(reached, end)
    raise LookupError(near)


def row(name: str, cat: str, start: float, lasts: float, **args: Any) -> Document:
    return {"name": name, "cat": cat, "ts": start, "dur": lasts, "args": args}


LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def loads(at: float) -> list[Document]:
    return [row(LOADER, "user_annotation", at, 20_000)]


def compiles(at: float) -> list[Document]:
    return [row("_compile.compile_inner (dynamo_timed)", "cpu_op", at, 20_000)]


def allocates(at: float) -> list[Document]:
    return [row("cudaMalloc", "cuda_runtime", at + 2000 * k, 1900, correlation=0) for k in range(10)]


def waits(at: float) -> list[Document]:
    """The device runs dry while the program waits for it, and the next launch comes 15 ms later."""
    number = int(at)  # a correlation id of its own
    return [
        row("cudaStreamSynchronize", "cuda_runtime", at - 300, 310, correlation=0),
        row("cudaLaunchKernel", "cuda_runtime", at + 15_000, 5, correlation=number),
        on_device("gemm", "kernel", at + 15_010, 4_000, number),
    ]


def on_device(name: str, cat: str, at: float, lasts: float, correlation: int = 0) -> Document:
    found = row(name, cat, at, lasts, device=0, stream=7, correlation=correlation)
    return {**found, "pid": 0, "tid": "stream 7"}


def copies(at: float) -> list[Document]:
    return [on_device("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", at, 20_000)]


def talks(at: float) -> list[Document]:
    return [on_device("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "kernel", at, 20_000)]


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [
        (loads, "data-loading"),
        (compiles, "recompilation"),
        (allocates, "allocator"),
        (waits, "synchronisation"),
        (copies, "exposed-copies"),
        (talks, "exposed-communication"),
    ],
)
def test_a_trouble_written_into_a_clean_trace(
    trouble: Callable[[float], list[Document]], expected: str, document: Callable[[str], Document], tmp_path: Path
) -> None:
    ids = ask(stretched(document("cuda_train_rank0"), 20_000, trouble), tmp_path)
    assert ids[0] == expected
    assert set(ids) <= {expected, "host-bound"}


DAY_US = 86_400e6


def marked(document: Document) -> list[Document]:
    """The steps, in order."""
    events = document["traceEvents"]
    steps = [event for event in events if str(event.get("name", "")).startswith("ProfilerStep#")]
    return sorted((step for step in steps if step.get("cat") == "user_annotation"), key=lambda step: step["ts"])


def moved(document: Document, speed: float, by_us: float) -> Document:
    """All that was recorded lasts `speed` times as long, and was recorded at another time."""
    for event in document["traceEvents"]:
        if "ts" in event:
            event["ts"] = event["ts"] * speed + by_us
        if "dur" in event:
            event["dur"] *= speed
    return document


def shortened(document: Document, steps: int) -> Document:
    """Without what began before the last so many steps, the first of which then warms up."""
    begin = marked(document)[-steps]["ts"]
    kept = [event for event in document["traceEvents"] if event.get("ts", begin) >= begin]
    return {**document, "traceEvents": kept}


def beside(document: Document, name: str, at: float, thread: int | None, steps: int | None = None) -> Document:
    """A call of 20 ms in each of the first so many steps, while the device is busy, or on another thread."""
    for step in marked(document)[:steps]:
        host = {"ph": "X", "pid": step["pid"], "tid": step["tid"] if thread is None else thread}
        document["traceEvents"].append({**host, **row(name, "cpu_op", step["ts"] + at, 20_000)})
    return document


COMPILER = "_compile.compile_inner (dynamo_timed)"
STILL_CLEAN: dict[str, Callable[[Document], Document]] = {
    **{f"lasts-{speed}": lambda one, speed=speed: moved(one, speed, 0) for speed in (0.5, 0.8, 1.25, 2, 4)},
    **{f"days-{days}": lambda one, days=days: moved(one, 1, days * DAY_US) for days in (-1, 400)},
    **{f"steps-{steps}": lambda one, steps=steps: shortened(one, steps) for steps in (3, 4)},
    **{f"loads-{at}": lambda one, at=at: beside(one, LOADER, at * 1000, None) for at in (10, 25, 40, 55)},
    **{f"compiles-{at}": lambda one, at=at: beside(one, COMPILER, at * 1000, 99) for at in (10, 25, 40, 55)},
    **{f"warms-up-{at}": lambda one, at=at: beside(one, COMPILER, at * 1000, None, 1) for at in (10, 40)},
    "loads-elsewhere": lambda one: beside(one, LOADER, 25_000, 99),
}


@pytest.mark.parametrize("edit", STILL_CLEAN)
def test_a_clean_trace_that_was_edited_and_is_still_clean(
    edit: str, document: Callable[[str], Document], tmp_path: Path
) -> None:
    """GIVEN other speeds, days and lengths, and calls behind device work or of the first step."""
    assert ask(STILL_CLEAN[edit](document("cuda_train_rank0")), tmp_path) == []

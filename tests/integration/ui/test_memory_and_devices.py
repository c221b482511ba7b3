"""Memory, devices and the account of a window on the page of a trace: numbers are those of `profctl`."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from profclient.cli.account_view import account_lines
from profclient.cli.flame import memory
from profclient.cli.output import stack_text
from profclient.cli.units import duration, signed_size, size

from tests.integration.ui.conftest import MARKUP, PROFCTL, Page, cells, event
from tests.unit.profclient.cli.test_account_view import account

pytestmark = pytest.mark.slow
STEPS = 6


def block(at: float, count: int, address: int) -> dict[str, Any]:
    """A record of memory, as Kineto writes it."""
    said = {"Device Type": 0, "Device Id": -1, "Addr": address, "Bytes": count, "Total Allocated": 0}
    return {**event("[memory]", at, 0, "cpu_instant_event"), "ph": "i", "s": "t", "args": said}


def leaking() -> list[dict[str, Any]]:
    """Steps that each keep a block, free another, launch a kernel, and copy; the call that leaks is named by markup."""
    events = []
    for step in range(STEPS):
        at = step * 1000.0
        events += [
            event(f"ProfilerStep#{step}", at, 990, "user_annotation"),
            event(MARKUP, at + 10, 300),
            block(at + 20, 400, 1000 + step),
            block(at + 30, 8000, 77),
            block(at + 40, -8000, 77),
            {**event("cudaLaunchKernel", at + 50, 10, "cuda_runtime"), "args": {"correlation": 2 * step + 1}},
            {**event("cudaMemcpyAsync", at + 70, 10, "cuda_runtime"), "args": {"correlation": 2 * step + 2}},
            work("gemm", "kernel", at + 100, 200, 7, correlation=2 * step + 1),
            work(
                "Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", at + 250, 100, 8, correlation=2 * step + 2, bytes=4096
            ),
        ]
    return events


def work(name: str, cat: str, at: float, lasts: float, stream: int, **said: int) -> dict[str, Any]:
    """Work of device 0."""
    return {**event(name, at, lasts, cat), "pid": 0, "tid": stream, "args": {"device": 0, "stream": stream, **said}}


@pytest.fixture(scope="module")
def trace(page: Page, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("memory") / "leaking.json"
    path.write_text(json.dumps({"traceEvents": leaking()}))
    done = subprocess.run([*PROFCTL, "import", str(path), "--json"], env=page.environ, capture_output=True, check=True)
    return str(json.loads(done.stdout)["trace"])


def test_a_launch_leads_to_its_kernel_and_back(page: Page, trace: str) -> None:
    tab = page.go(f"/trace/{trace}")
    panel = tab.locator(".event")
    for name, other in (("gemm", "cudaLaunchKernel"), ("cudaLaunchKernel", "gemm")):
        search = tab.get_by_role("searchbox", name="Search names in the timeline")
        search.fill(name)
        search.press("Enter")
        tab.get_by_text(f"{STEPS} events found").wait_for()
        search.press("Enter")
        panel.locator("b").get_by_text(name, exact=True).wait_for()
        panel.get_by_role("button", name=other, exact=True).first.click()
        panel.locator("b").get_by_text(other, exact=True).wait_for()
    assert page.complaints == []


def test_memory_is_that_of_the_command_and_a_step_narrows_it(page: Page, trace: str) -> None:
    for place, words in (("", ()), ("?step=2", ("--step", "2"))):
        tab = page.go(f"/trace/{trace}{place}")
        told = page.json("memory", trace, *words)
        (shown,) = cells(tab, "Memory by device")
        (device,) = told["devices"]
        assert shown[1:7] == [
            *(size(device["allocated_bytes"]), f"{device['allocations']:,}"),
            *(size(device["freed_bytes"]), f"{device['frees']:,}"),
            *(signed_size(device["net_bytes"]), size(device["peak_bytes"])),
        ]
        alive = [[size(row["bytes"]), str(row["blocks"]), stack_text(row["stack"])] for row in told["alive"]["rows"]]
        assert [[row[0], row[1], row[-1]] for row in cells(tab, "Still alive")] == alive
        assert MARKUP in alive[0][2]
    tab = page.go(f"/trace/{trace}")
    assert cells(tab, "Still alive")[0][3] == "▲ grows"
    assert tab.locator("main img").count() == 0
    assert page.complaints == []


@pytest.fixture(scope="module")
def on_both(page: Page, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A trace with memory of the host and of a GPU, most of it in step 4."""
    path = tmp_path_factory.mktemp("memory") / "both.json"
    events = leaking()
    for step in range(STEPS):
        made = block(step * 1000.0 + 25, 70_000 if step == 4 else 5_000, 0x7F00 + step)
        events.append({**made, "args": {**made["args"], "Device Type": 1, "Device Id": 0, "Total Allocated": 90_000}})
        gone = block(step * 1000.0 + 900, -events[-1]["args"]["Bytes"], 0x7F00 + step)
        events.append({**gone, "args": {**gone["args"], "Device Type": 1, "Device Id": 0}})
    path.write_text(json.dumps({"traceEvents": events}))
    done = subprocess.run([*PROFCTL, "import", str(path), "--json"], env=page.environ, capture_output=True, check=True)
    return str(json.loads(done.stdout)["trace"])


def peak_of(page: Page, trace: str, *words: str) -> tuple[dict[str, Any], list[list[Any]], str]:
    """(the answer of the command, its boxes as the page is to draw them, its sentence)."""
    told = page.json("flame", trace, "--of", "memory", *words)
    boxes = [[box.depth, box.left, box.width, box.node["name"]] for box in memory.boxes(told["nodes"])]
    return told, boxes, f"{memory.title(told)}. {memory.meaning(told)}"


def test_the_graph_of_memory_at_its_peak_is_that_of_the_command(page: Page, on_both: str) -> None:
    tab = page.go(f"/trace/{on_both}")
    graph = tab.get_by_role("region", name="Flame graph")
    assert not tab.get_by_role("combobox", name="On", exact=True).is_visible()
    tab.get_by_role("combobox", name="Of", exact=True).select_option(label="memory at its peak")
    page.settled()
    told, boxes, sentence = peak_of(page, on_both)
    assert (told["name"], told["peak_bytes"], told["in_use_bytes"]) == ("CUDA 0", 70_000, 90_000)
    assert sentence in graph.inner_text()
    first = graph.get_by_role("treeitem").first
    assert (
        first.get_attribute("aria-label") == f"{boxes[0][3]}\n70.0 kB (100.0 %), itself 0 B, 1 block [user_annotation]"
    )
    assert [one.inner_text() for one in graph.get_by_role("treeitem").all()] == [box[3] for box in boxes]
    assert MARKUP in [box[3] for box in boxes]
    # AND of the other device, of a step, and of a thread
    tab.get_by_role("combobox", name="On", exact=True).select_option("CPU")
    page.settled()
    told, boxes, sentence = peak_of(page, on_both, "--device", "CPU")
    assert told["peak_bytes"] == 8000 + 400 * STEPS
    assert sentence in graph.inner_text()
    program = (
        "async (nodes) => (await import('/static/flame_memory.js')).memoryBoxes(nodes)"
        ".map(({ depth, left, width, node }) => [depth, left, width, node.name])"
    )
    assert tab.evaluate(program, told["nodes"]) == boxes
    page.go(f"/trace/{on_both}?step=2")
    assert peak_of(page, on_both, "--step", "2")[2] in graph.inner_text()
    assert "5.0 kB in 1 block on CUDA 0" in graph.inner_text()
    tab.get_by_role("combobox", name="Thread", exact=True).select_option(index=1)
    page.settled()
    assert "5.0 kB in 1 block on CUDA 0" in graph.inner_text()
    assert tab.locator("main img").count() == 0
    assert page.complaints == []


def test_devices_are_those_of_the_command(page: Page, trace: str) -> None:
    tab = page.go(f"/trace/{trace}")
    told = page.json("gpu", trace)
    delays = ("launch_delay_p50_ns", "launch_delay_p95_ns")
    keys = ("overlap_ns", "idle_waiting_ns", "idle_empty_ns", "exposed_copy_ns", *delays)
    assert [row[2:] for row in cells(tab, "Devices")] == [
        [duration(row[key]) for key in keys] for row in told["devices"]
    ]
    assert [row[0] for row in cells(tab, "Streams")] == ["CUDA 0 #7", "CUDA 0 #8"]
    assert [row[6] for row in cells(tab, "Streams")] == [str(row["queue_max"]) for row in told["streams"]]
    (copy,) = told["copies"]
    (shown,) = cells(tab, "Copies")
    assert shown[1:] == [str(copy["count"]), size(copy["bytes"]), duration(copy["duration_ns"]), shown[4], copy["name"]]
    assert shown[4] == f"{size(int(copy['bytes_per_second']))}/s"
    ops = [[str(row["count"]), duration(row["self_device_time_total_ns"])] for row in told["ops"]]
    assert [row[:2] for row in cells(tab, "Operators that launched most")] == ops
    assert ops
    assert (
        "100% of 12 device events found the call" in tab.get_by_role("region", name="Devices", exact=True).inner_text()
    )
    assert page.complaints == []


def test_a_trace_without_either_has_no_part_for_them(page: Page) -> None:
    tab = page.go(f"/trace/{page.traces['before']}")
    heads = [one.inner_text() for one in tab.locator("h2").all()]
    assert not {"Memory", "Devices"} & set(heads)
    assert "memory at its peak" not in tab.get_by_role("combobox", name="Of", exact=True).inner_text()


def test_a_deep_stack_of_long_names_is_cut_at_its_outer_end(page: Page) -> None:
    page.go("/")
    program = "async (stack) => (await import('/static/memory.js')).stackWords(stack)"
    assert page.tab.evaluate(program, ["inner", "outer"]) == "outer > inner"
    assert page.tab.evaluate(program, []) == "(no call around it)"
    deep = page.tab.evaluate(program, ["inner", *["y" * 1_000] * 255])
    assert deep.startswith("… > ")
    assert deep.endswith("… > inner")
    assert len(deep) < 1000


ACCOUNTS = {
    "waits": account(600, gil_ns=500, lock_ns=0),
    "no-gil": account(600, gil_ns=None, lock_ns=100),
    "earlier": account(600),
    "hardly": account(40, gil_ns=40, lock_ns=0),
    "threads": account(600, gil_ns=4, lock_ns=0)
    | {"idle_threads": 1200, "ran_threads": 3, "cpu_ns": 400, "cores": 2, "message": "Half of it.", "hint": "--stacks"},
    "none": {"window_ns": None, "leading": None, "threads": []},
}


@pytest.mark.parametrize("name", ACCOUNTS)
def test_the_account_of_a_window_is_told_as_the_command_tells_it(page: Page, name: str) -> None:
    """What waits for the GIL and for locks, which threads ran, and what no source saw, word by word."""
    program = "async (told) => (await import('/static/account.js')).accountLines(told).map(([, text]) => text)"
    if page.tab.url == "about:blank":
        page.go("/")
    assert page.tab.evaluate(program, ACCOUNTS[name]) == [text for _, text in account_lines(ACCOUNTS[name])]

"""The wire format: what real programs' events take and cost on it, and files of chunks to stored traces."""

from __future__ import annotations

from collections.abc import Iterator

from profd.workers.child import ALLOCATOR

from bench import floors
from bench.measure import SCRATCH, Row, child

BAR_BYTES = 4
BAR_ENCODE_NS = 40
BAR_STORE = 2.2
TIMES = 3
SIZES = (100_000, 1_000_000, 10_000_000)
GROWTH = 2
FLOOR_READ_NS = 9.6  # varint rows under zstd-1 to columns, as a prototype in C did it


def rows(events: int) -> Iterator[Row]:
    """The rows of this case. `events` is not used: the programs make as many as they make."""
    for program in child("bench.ours.wire:names", {})["result"]:
        yield from _program(program)
    yield from _all_stored()


def _program(program: str) -> Iterator[Row]:
    found = child("bench.ours.wire:on_the_wire", {"program": program})["result"]
    what = f"{program}, {found['events'] / 1e6:.2f}M calls"
    yield Row(
        "wire",
        f"{what}: bytes an event",
        f"{found['bytes']:.2f}",
        peer=f"Chrome JSON, gz: {found['gz_json']:.1f}",
        ratio=found["bytes"] / found["gz_json"],
        bar=f"<= {BAR_BYTES}",
        met=found["bytes"] <= BAR_BYTES,
        note="headers and texts included",
    )
    yield Row(
        "wire",
        f"{what}: encode and compress",
        f"{found['whole_ns']:.1f} ns an event",
        floor=f"copy {found['copy_ns']:.1f} ns, with varints {found['varint_ns']:.1f} ns",
        bar=f"<= {BAR_ENCODE_NS} ns",
        met=found["whole_ns"] <= BAR_ENCODE_NS,
        note=f"without compression {found['encode_ns']:.1f} ns; CPU time",
    )


def _all_stored() -> Iterator[Row]:
    stored = {size: _stored(size) for size in SIZES}
    for size, (row, _) in stored.items():
        if size > SIZES[0]:  # of fewer events there is no bar but the next one
            yield row
    taken = [ns for _, ns in stored.values()]
    growth = max(taken) / min(taken)
    yield Row(
        "wire",
        "stored chunks to stored trace, ns an event at 1e5 / 1e6 / 1e7",
        " / ".join(f"{ns:.0f}" for ns in taken),
        ratio=growth,
        bar=f"within {GROWTH}x",
        met=growth <= GROWTH,
        note="CPU of all threads",
    )


def _stored(size: int) -> tuple[Row, float]:
    """The row of one size, and what an event took."""
    path = SCRATCH / f"chunks-{size}.pfc"
    if not path.exists():
        SCRATCH.mkdir(exist_ok=True)
        child("bench.ours.wire:write_file", {"path": str(path), "events": size})
    # By turns, and the least of each: others use these cores too.
    runs, writes = [], []
    for _ in range(TIMES):
        runs.append(child("bench.ours.wire:store", {"path": str(path)}, environment=ALLOCATOR))
        count = runs[0]["result"]["events"]
        writes.append(child("bench.ours.wire:parquet", {"events": count}, environment=ALLOCATOR)["result"])
    found = min(runs, key=lambda run: run["result"]["seconds"])
    result, parquet = found["result"], min(writes)
    tree = floors.run("tree", str(count), "4")[0]
    floor = tree + parquet + FLOOR_READ_NS * 1e-9 * count
    stages = ", ".join(f"{name} {ns / count:.0f}" for name, ns in result["stages"].items())
    row = Row(
        "wire",
        f"stored chunks to stored trace, {size / 1e6:g}M events",
        f"{result['seconds'] / count * 1e9:.0f} ns an event",
        floor=f"{floor / count * 1e9:.0f} ns (read, tree, Parquet)",
        ratio=result["seconds"] / floor,
        bar=f"<= {BAR_STORE}x",
        met=result["seconds"] / floor <= BAR_STORE,
        note=f"CPU of all threads; wall by stage: {stages}; peak {found['peak_bytes'] / 1e6:.0f} MB, "
        f"lost: {result['lost'] or 'nothing'}",
    )
    return row, result["seconds"] / count * 1e9

"""A recording of the observer, stored, beside torch.profiler of the same run: tables, memory, tensors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import profd.query
import pytest
from profd.derive.tensors import NOT_AN_INPUT, find_tensors
from profd.events import NO_END, Kind

from tests.support.importing import import_trace

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("torch_builds")]

PROGRAM = Path(__file__).with_name("identified.py")
SECONDS = 300
WORKLOADS = ("mlp", "transformer", "torchscript", "conv_and_lists", "shared_storages", "autograd", "ranges")
NO_TENSOR = -1


@dataclass(frozen=True)
class Use:
    """An input of an op, or a block of memory, in the order of events."""

    op: str
    position: int  # NOT_AN_INPUT: memory
    impl: int
    storage: int  # 0: none
    id: int | None
    freed: bool = False


@dataclass
class Recording:
    """One workload, as we have it and as torch says it was."""

    trace: profd.query.Trace
    torch: dict[str, Any]


@pytest.fixture(scope="module")
def recordings(torch_builds: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    folder = tmp_path_factory.mktemp("recordings")
    command = [sys.executable, str(PROGRAM), str(folder), *WORKLOADS]
    done = subprocess.run(command, env={**os.environ}, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = {}
    for name in WORKLOADS:
        said = import_trace(folder / f"{name}.pfc", folder / name, kind="chunks")
        assert not said["lost"]
        found[name] = Recording(profd.query.open(folder / name), json.loads((folder / f"{name}.json").read_text()))
    return found


@pytest.mark.parametrize("workload", WORKLOADS)
def test_top_has_torchs_rows_calls_and_bytes(workload: str, recordings: dict[str, Recording]) -> None:
    recording = recordings[workload]
    ours = Counter(
        (
            row.name,
            str(json.loads(row.input_shapes or "[]")),
            row.count,
            row.cpu_memory_usage,
            row.self_cpu_memory_usage,
        )
        for row in recording.trace.key_averages(group_by_input_shape=True)
    )
    rows = recording.torch["averages"]
    assert len(rows) > 5
    assert ours == Counter((row["name"], row["shapes"], row["count"], *row["memory"]) for row in rows)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_top_has_the_times_that_torchs_own_table_makes_of_our_events(
    workload: str, recordings: dict[str, Recording]
) -> None:
    trace = recordings[workload].trace
    ours = sorted(
        (row.name, row.count, row.cpu_time_total_ns, row.self_cpu_time_total_ns)
        for row in trace.key_averages()
        if row.name != "[memory]"
    )
    theirs = torch_averages(trace)
    assert ours == sorted(
        (row.key, row.count, round(row.cpu_time_total * 1000), round(row.self_cpu_time_total * 1000)) for row in theirs
    )


def torch_averages(trace: profd.query.Trace) -> Any:
    """torch.profiler's own key averages of the calls of a trace."""
    from torch.autograd.profiler_util import EventList, FunctionEvent
    from torch.profiler import DeviceType

    table = trace.events(["name", "kind", "start", "end", "thread", "is_async"])
    names = table.dictionaries["name"].values
    zero = int(table.columns["start"][0])
    rows = zip(
        *(table.column(name).tolist() for name in ("name", "kind", "start", "end", "thread", "is_async")), strict=True
    )
    events = EventList(
        FunctionEvent(
            id=number,
            name=names[name],
            thread=thread,
            stack=[],
            start_us=(start - zero) / 1000,
            end_us=(end - zero) / 1000,
            is_async=bool(is_async),
            is_user_annotation=kind == Kind.USER_ANNOTATION,
            device_type=DeviceType.CPU,
        )
        for number, (name, kind, start, end, thread, is_async) in enumerate(rows)
        if kind in (Kind.CPU_OP, Kind.USER_ANNOTATION) and end != NO_END and names[name] not in HIDDEN
    )
    events._build_tree()
    return events.key_averages()


# torch takes these out before it makes events of what it recorded.
HIDDEN = {
    *("aten::is_leaf", "aten::output_nr", "aten::_version"),
    *("profiler::_record_function_enter", "profiler::_record_function_enter_new", "profiler::_record_function_exit"),
}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_tensors_are_torchs_tensors(workload: str, recordings: dict[str, Recording]) -> None:
    """Up to renaming; where torch's own ids are wrong, `check_ids_are_no_coarser` says how."""
    ours, theirs = our_uses(recordings[workload]), torch_uses(recordings[workload])
    assert len(ours) > 20
    assert [(use.op, use.position, use.impl, use.storage) for use in ours] == [
        (use.op, use.position, use.impl, use.storage) for use in theirs
    ]
    assert renamed([use.id for use in ours]) == renamed(islands(theirs))
    check_ids_are_no_coarser(theirs)


def test_where_torch_splits_what_is_one_island(recordings: dict[str, Recording]) -> None:
    recording = recordings["shared_storages"]
    ours, theirs = [use.id for use in our_uses(recording)], [use.id for use in torch_uses(recording)]
    met: dict[int | None, set[int | None]] = {}
    for mine, its in zip(ours, theirs, strict=True):
        met.setdefault(mine, set()).add(its)
    assert sorted(len(ids) for ids in met.values())[-2:] == [1, 2]  # one of our islands is two of torch's


def our_uses(recording: Recording) -> list[Use]:
    table = recording.trace.events()
    found = find_tensors(table)
    names = table.dictionaries["name"].values
    freed = (table.column("bytes")[found.row] < 0) & (table.column("bytes")[found.row] != NO_END)
    uses = zip(
        (names[code] for code in table.columns["name"][found.row]),
        *(column.tolist() for column in (found.position, found.impl, found.storage, found.tensor, freed)),
        strict=True,
    )
    # torch's allocator does not tell of blocks of no bytes.
    return [Use(*use) for use in uses if use[1] != NOT_AN_INPUT or use[3]]


def torch_uses(recording: Recording) -> list[Use]:
    uses = []
    for row in recording.torch["tree"]:
        for position, tensor in enumerate(row.get("inputs", ())):
            uses.append(Use(row["name"], position, tensor["impl"] or 0, tensor["storage"] or 0, tensor["id"]))
        if row["kind"] == "Allocation":
            uses.append(Use(row["name"], NOT_AN_INPUT, 0, row["ptr"], row["id"], row["bytes"] < 0))
    return uses


def renamed(ids: list[int | None]) -> list[int]:
    """Numbered by first use; no tensor stays none."""
    numbers: dict[int, int] = {}
    return [NO_TENSOR if one in (None, NO_TENSOR) else numbers.setdefault(int(one or 0), len(numbers)) for one in ids]


def islands(uses: list[Use]) -> list[int | None]:
    """The definition, slowly: uses are joined that share a living storage or an impl, until nothing changes."""
    alive: dict[int, int] = {}
    storage_of: list[int | None] = []
    for number, use in enumerate(uses):
        known = bool(use.storage and (use.impl or use.position == NOT_AN_INPUT))
        storage_of.append(alive.setdefault(use.storage, number) if known else None)
        if use.freed:
            alive.pop(use.storage, None)
    tensors = {of for of, use in zip(storage_of, uses, strict=True) if use.position != NOT_AN_INPUT}
    island = {of: of for of in tensors if of is not None}
    first: dict[int, int] = {}
    pairs = set()
    for of, use in zip(storage_of, uses, strict=True):
        if of is not None and use.position != NOT_AN_INPUT:
            pairs.add((first.setdefault(use.impl, of), of))
    changed = True
    while changed:
        changed = False
        for one, other in pairs:
            least = min(island[one], island[other])
            changed |= (island[one], island[other]) != (least, least)
            island[one] = island[other] = least
    return [None if of is None else island.get(of) for of in storage_of]


def check_ids_are_no_coarser(uses: list[Use]) -> None:
    """Where torch's ids and the islands differ, it is by one of torch's two errors.

    - An input without memory has no storage. Torch 2.13 takes "none" for an address, so that all such inputs, and
      whatever else their tensors were, have one id. These ids are left out here.
    - Its merge of sorted pairs keeps apart what is joined only through the later one: several ids in an island.
    """
    nowhere = {use.id for use in uses if use.position != NOT_AN_INPUT and not use.storage}
    met: dict[int | None, int | None] = {}
    for use, island in zip(uses, islands(uses), strict=True):
        if island is not None and use.id not in nowhere:
            assert met.setdefault(use.id, island) == island, use

"""Op by op, the observer sees what torch.profiler sees in the same run, and the job computes the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.torch_observer.compare import Op, of_observer, of_profiler
from tests.integration.torch_observer.running import run, run_ranks

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("torch_builds")]

LOCAL = (
    *("mlp", "transformer", "torchscript", "conv_and_lists", "odd_tensors", "autograd", "ranges"),
    *("throwing", "jit_fork", "loader", "compiled_eager", "compiled_aot"),
)
LONGEST_LIST = 30  # of which torch.profiler prints the values


# What a TorchScript function that forks began on this thread may end on another, and after we have looked.
ENDS_ELSEWHERE = ("jit_fork",)


@pytest.fixture(scope="module")
def recorded(torch_builds: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every workload with us, and its results without, in two processes: importing torch takes longest."""
    folder = tmp_path_factory.mktemp("parity")
    said = run(folder / "with.json", *LOCAL)
    without = run(folder / "without.json", *LOCAL, "--without")
    return {name: {**said[name], "control": without[name]["digest"]} for name in LOCAL}


@pytest.mark.parametrize("workload", LOCAL)
def test_every_op_is_torchs_op_and_every_bit_its_bit(workload: str, recorded: dict[str, Any]) -> None:
    said = recorded[workload]
    ours, theirs = sides(said)
    assert len(theirs) > 3
    check_same(ours, theirs, nesting=workload not in ENDS_ELSEWHERE)
    assert not any(said["lost"].values())
    assert said["digest"] == said["control"]


def test_two_ranks_over_gloo(tmp_path: Path) -> None:
    with_us, without = run_ranks("gloo", tmp_path), run_ranks("gloo", tmp_path, "--without")
    for said, control in zip(with_us, without, strict=True):
        ours, theirs = sides(said)
        check_same(ours, theirs)
        assert said["digest"] == control["digest"]
        # Collectives begin and end on gloo's own threads.
        elsewhere = [event for event in said["ours"] if event["tid"] != said["pid"]]
        assert any(event["name"].startswith("gloo:") for event in elsewhere)


def sides(said: dict[str, Any]) -> tuple[list[Op], list[Op]]:
    """Of the main thread: torch.profiler in its usual mode knows no other."""
    return of_observer(said["ours"], said["pid"]), of_profiler(said["theirs"], said["pid"])


def check_same(ours: list[Op], theirs: list[Op], *, nesting: bool = True) -> None:
    assert [op.name for op in ours] == [op.name for op in theirs]
    if nesting:
        assert all(op.ended for op in ours)
        assert [op.depth for op in ours] == [op.depth for op in theirs]
    assert [op.sequence for op in ours] == [op.sequence for op in theirs]
    assert [op.user for op in ours] == [op.user for op in theirs]
    check_forward_threads(ours, theirs)
    for mine, its in zip(ours, theirs, strict=True):
        check_inputs(mine, its)


def check_forward_threads(ours: list[Op], theirs: list[Op]) -> None:
    """Ours are OS threads, theirs torch's numbers: the same threads under other names."""
    # Without a sequence number (AccumulateGrad) torch's JSON leaves the thread out as well.
    rows = [(mine, its) for mine, its in zip(ours, theirs, strict=True) if its.sequence >= 0]
    names = {(mine.forward, its.forward) for mine, its in rows}
    assert len({mine for mine, _ in names}) == len({its for _, its in names}) == len(names)
    assert all((mine == 0) == (its == 0) for mine, its in names)


def check_inputs(mine: Op, its: Op) -> None:
    assert mine.inputs.keys() == its.inputs.keys(), mine.name
    if not its.inputs:
        return
    # Of nested tensors torch.profiler says nothing at all, we their dtype and the sizes of each.
    types = zip(mine.inputs["Input type"], its.inputs["Input type"], strict=True)
    assert all(one == other or other == "" for one, other in types), mine.name
    assert mine.inputs["Concrete Inputs"] == its.inputs["Concrete Inputs"], mine.name
    for key in ("Input Dims", "Input Strides"):
        for one, other, known in zip(mine.inputs[key], its.inputs[key], its.inputs["Input type"], strict=True):
            # torch.profiler prints no list of more than 30 tensors, and asks sparse tensors for their sizes: we do
            # the first and leave the second, since some tensors answer by calling Python or by raising.
            assert one == other or len(one) > LONGEST_LIST or one == [] or known == "", mine.name


def test_nested_tensors_have_their_sizes(recorded: dict[str, Any]) -> None:
    ours, _ = sides(recorded["odd_tensors"])
    [times] = [op for op in ours if op.name == "aten::mul" and op.inputs["Input Dims"][0] == [[2], [3]]]
    assert times.inputs["Input type"][0] == "float"


def test_sizes_are_not_asked_of_tensors_that_would_call_python_or_raise(recorded: dict[str, Any]) -> None:
    ours, theirs = sides(recorded["odd_tensors"])
    unasked = {mine.name for mine, its in zip(ours, theirs, strict=True) if mine.inputs != its.inputs}
    assert {"aten::_nnz", "aten::_coalesced_"} <= unasked
    assert not unasked & {"aten::dequantize", "aten::reshape"}

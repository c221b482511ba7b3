"""Run as a program: what must hold while ops are recorded, in one process, one function after the other.

Prints the name of each that held; ends with an error at the first that did not.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import sys
import threading
import unittest.mock
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import pytest
import torch
from profclient import _recorder
from profclient.torch import observer, recording
from profclient.torch.profiler import Profiler, forget_files
from profd.decode.op_inputs import signature
from profd.derive.flops import op_flops

from tests.integration.torch_observer.observed import INPUTS, MEMORY, OPS, RANGES, TENSOR_IDS, observed
from tests.support.arena_reader import ALLOW_TF32, Ext, Kind, read_arena

LITE_INTERPRETER = 6  # at::RecordScope


def torch_has_no_callback() -> bool:
    """As torch itself says it, of every thread and of everybody."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    asked = library._ZN2at18hasGlobalCallbacksEv
    asked.restype = ctypes.c_bool
    return not asked()


def nobody_listens_before_the_start_and_after_the_stop() -> None:
    loaded = observer.load()
    assert loaded is not None
    assert torch_has_no_callback()
    for bits in (0, INPUTS):
        with observed(bits):
            assert not torch_has_no_callback()
        assert torch_has_no_callback()


def nothing_is_recorded_after_the_stop() -> None:
    loaded = observer.load()
    assert loaded is not None
    descriptor = _recorder.arm(sources=RANGES | OPS)
    loaded.start(0)
    torch.ones(2)
    loaded.stop()
    before = _recorder.totals()["recorded"]
    for _ in range(100):
        torch.ones(2)
    assert _recorder.totals()["recorded"] == before
    _recorder.disarm()
    assert [event.name for event in read_arena(descriptor).events].count("aten::ones") == 1
    while not _recorder.release():
        pass


def threads_come_and_go() -> None:
    def work() -> None:
        torch.ones(2).add(1)

    with observed(0) as found:
        for _ in range(300):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    [arena] = found
    adds = arena.named("aten::add")
    assert len(adds) == 300
    assert all(event.end for event in arena.events)
    assert not any(arena.lost.values())
    assert len(arena.chunks) < 10  # a thread that ended leaves its chunk to the next


def an_op_ends_with_the_session_of_its_begin() -> None:
    """A range that is open at the stop, and ends in a later session, belongs to neither end."""
    left_open = torch.profiler.record_function("left open")
    with observed(0) as first:
        left_open.__enter__()
    with observed(0) as second:
        left_open.__exit__(None, None, None)
        torch.ones(1)
    assert first[0].one("left open").end == 0
    assert "left open" not in second[0].names()
    assert second[0].named("aten::ones")


def a_throwing_backward_ends_its_ops() -> None:
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
            raise ValueError("bad")

    def work() -> None:
        try:
            Bad.apply(torch.ones(1, requires_grad=True)).backward()
        except ValueError:
            failed.append(True)

    failed: list[bool] = []
    with observed(INPUTS) as found:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert failed
    assert all(event.end for event in found[0].events)
    assert any(event.name == "BadBackward" for event in found[0].events)


def an_op_that_throws_ends() -> None:
    with observed(INPUTS) as found:
        for _ in range(3):
            with pytest.raises(RuntimeError):
                torch.mm(torch.ones(2, 3), torch.ones(2, 3))
        torch.ones(2).sub(1)
    thrown = found[0].named("aten::mm")
    assert len(thrown) == 3
    assert all(event.end for event in thrown)
    assert found[0].one("aten::sub").end


def a_thread_that_ends_inside_an_op_leaves_it_open() -> None:
    """What it had begun ends where the last reference to it goes, on another thread."""
    kept = []

    def work() -> None:
        begun = torch.profiler.record_function("of a dead thread")
        begun.__enter__()
        kept.append(begun)

    with observed(0) as found:
        for _ in range(20):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        kept[0].__exit__(None, None, None)
        torch.ones(2).sub(1)
    begun = found[0].named("of a dead thread")
    assert len(begun) == 20
    assert sum(event.end != 0 for event in begun) == 1
    assert found[0].one("aten::sub").end
    kept.clear()


def backward_within_backward_runs_on_threads_of_its_own() -> None:
    """Reentrant autograd takes another thread at a depth of 60 (torch's MAX_DEPTH)."""

    class Deeper(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, depth: int) -> torch.Tensor:
            ctx.depth = depth
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
            if ctx.depth:
                with torch.enable_grad():
                    inner = torch.ones(1, requires_grad=True)
                    Deeper.apply(inner, ctx.depth - 1).sum().backward()
            return gradients[0] * 2, None

    start = torch.ones(1, requires_grad=True)
    with observed(INPUTS) as found:
        Deeper.apply(start, 70).sum().backward()
    assert start.grad is not None
    assert float(start.grad) == 2.0
    backward = found[0].named("DeeperBackward")
    assert len(backward) == 71
    assert all(event.end for event in backward)
    assert len({event.tid for event in backward}) > 1


def tf32_is_told_of_matrix_products() -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        with observed(0) as found:
            for allowed in (True, False):
                torch.backends.cuda.matmul.allow_tf32 = allowed
                torch.mm(torch.ones(2, 2), torch.ones(2, 2))
                torch.ones(2).add(1)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert [bool(event.flags & ALLOW_TF32) for event in found[0].named("aten::mm")] == [True, False]
    assert not any(event.flags & ALLOW_TF32 for event in found[0].named("aten::add"))


def flops_are_what_torch_counts() -> None:
    image, kernel = torch.ones(2, 4, 9, 8), torch.ones(6, 2, 3, 3)
    left, right = torch.ones(3, 2, 4), torch.ones(3, 4, 5)
    with torch.profiler.profile(record_shapes=True, with_flops=True) as profiler, observed(INPUTS) as found:
        torch.nn.functional.conv2d(image, kernel, stride=(2, 1), padding=1, dilation=(1, 2), groups=2)
        torch.bmm(left, right)
        torch.baddbmm(torch.ones(3, 2, 5), left, right)
        torch.addmm(torch.ones(2, 5), left[0], right[0])
        left[0].mm(right[0]).mul(2).add(1)
    events = profiler.profiler.kineto_results.events()
    theirs = sorted((event.name(), event.flops()) for event in events if event.flops())
    inputs = [(event.name, event.ext.get(Ext.INPUTS)) for event in found[0].events]
    ours = [(name, op_flops(name, signature(stream))) for name, stream in inputs if stream is not None]
    assert sorted((name, int(flops)) for name, flops in ours if flops) == theirs
    assert len({name for name, _ in theirs}) == 7


def lists_that_do_not_fit_are_cut() -> None:
    parameters = [torch.ones(3, 4, 5, 6) for _ in range(2000)]  # as a fused optimizer has them
    with observed(INPUTS) as found:
        torch._foreach_add(parameters, parameters)
    [event] = found[0].named("aten::_foreach_add")
    told = json.loads(signature(event.ext[Ext.INPUTS]))
    assert told["Input Dims"][:2] == [[[3, 4, 5, 6]] * 8] * 2
    assert told["Concrete Inputs"][0] == "2000 tensors, the first 8 are here"
    assert not any(found[0].lost.values()), found[0].lost


def ids_that_do_not_fit_are_cut_with_their_list() -> None:
    with observed(observer.wanted({"shapes": "", "memory": ""})) as found:
        torch._foreach_norm([torch.ones(3) for _ in range(300)])
    [event] = found[0].named("aten::_foreach_norm")
    assert event.ext[Ext.INPUTS][0] == 14  # a cut list
    assert len(event.ext[Ext.TENSOR_IDS]) == 8 * 16
    assert not any(found[0].lost.values()), found[0].lost


def ops_of_a_mobile_model_have_debug_handles() -> None:
    from torch.jit.mobile import _load_for_lite_interpreter

    scripted = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())).eval()
    model = _load_for_lite_interpreter(io.BytesIO(scripted._save_to_buffer_for_lite_interpreter()))
    with observed(observer.wanted({})) as found:
        model(torch.ones(1, 2))
    mobile = [event for event in found[0].events if event.scope == LITE_INTERPRETER]
    assert {event.name for event in mobile} >= {"aten::linear", "aten::relu"}
    assert all(Ext.DEBUG_HANDLE in event.ext for event in mobile), mobile


def a_fork_records_nothing_of_the_child() -> None:
    with observed(0) as found:
        torch.ones(1)
        child = os.fork()
        if child == 0:
            torch.ones(1).mul(3)
            os._exit(7 if _recorder.sources() else 0)
        assert os.waitpid(child, 0)[1] == 0
        torch.ones(1).sub(1)
    assert not found[0].named("aten::mul")
    assert found[0].one("aten::sub").end


def torch_profiler_comes_and_goes_meanwhile() -> None:
    with observed(0) as found:
        for _ in range(3):
            with torch.profiler.profile() as profiler:
                torch.ones(2).add(2)
            assert any(event.name == "aten::add" for event in profiler.events())
        torch.ones(2).sub(2)
    assert len(found[0].named("aten::add")) == 3
    assert found[0].one("aten::sub").end


def a_toggling_observer_disturbs_nobody() -> None:
    loaded = observer.load()
    assert loaded is not None
    done = threading.Event()
    counts = [0, 0]

    def work(number: int) -> None:
        while not done.is_set():
            assert float(torch.ones(2).add(1).sum()) == 4.0
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        descriptor = _recorder.arm(arena_bytes=4 << 20, sources=RANGES | OPS)
        loaded.start(INPUTS)
        loaded.stop()
        _recorder.disarm()
        read_arena(descriptor)
        while not _recorder.release():
            pass
    done.set()
    for thread in threads:
        thread.join()
    assert all(counts)


def memory_is_told_on_every_thread() -> None:
    loaded = observer.load()
    assert loaded is not None
    older = torch.empty(1000)
    kept = []
    with observed(INPUTS | TENSOR_IDS) as found:
        loaded.start_memory()
        thread = threading.Thread(target=lambda: kept.append(torch.empty(5000)))
        thread.start()
        thread.join()
        block = torch.empty(3000)
        del older, block
        loaded.stop_memory()
        unseen = torch.empty(7000)
    events = [event for event in found[0].events if event.kind is Kind.ALLOC]
    sizes = [event.payload - (1 << 64) if event.payload >> 63 else event.payload for event in events]
    assert [size for size in sizes if abs(size) >= 12000] == [20000, 12000, -12000]
    addresses = {size: event.end for size, event in zip(sizes, events, strict=True)}
    assert addresses[12000] == addresses[-12000]
    assert kept[0].data_ptr() == addresses[20000]
    assert unseen.numel() == 7000
    kept.clear()  # a block that came through us dies after the stop


def out_of_memory_is_told() -> None:
    loaded = observer.load()
    assert loaded is not None
    with observed(0) as found:
        loaded.start_memory()
        try:
            torch.empty(1 << 60, dtype=torch.uint8)
        except RuntimeError:
            pass
        finally:
            loaded.stop_memory()
    [event] = [event for event in found[0].events if event.kind is Kind.OUT_OF_MEMORY]
    assert event.payload == 1 << 60


def profilers_of_torch_do_not_meet() -> None:
    with torch.profiler.profile(), pytest.raises(RuntimeError, match="another torch profiler"):
        Profiler(observer.load(), {"torch": "profiler"}).start()


def a_profiler_that_was_overtaken_is_not_exported() -> None:
    ours = Profiler(observer.load(), {"torch": "profiler", "window": "1000000000"})
    ours.start()
    with torch.profiler.profile() as theirs:
        torch.ones(2)
    assert any(event.name == "aten::ones" for event in theirs.events())
    with pytest.raises(RuntimeError, match="another torch profiler"):
        ours.stop()


def torchs_own_profiler_is_never_started_unless_forced() -> None:
    """An observer that cannot be had, or an older daemon that asks for the profiler: nothing starts it."""
    nothing = (None, recording.NO_OBSERVER)
    with unittest.mock.patch.object(Profiler, "start") as started:
        with unittest.mock.patch.object(recording, "_observer", return_value=nothing):
            for asked, said in (("auto", "no observer"), ("observer", "no observer"), ("profiler", "crash")):
                with pytest.raises(RuntimeError, match=said):
                    recording.start({"torch": asked, "shapes": "", "window": "1000000"})
        with pytest.raises(RuntimeError, match=r"crash.*--force"):
            recording.start({"torch": "profiler"})
    started.assert_not_called()


def a_torch_that_is_being_imported_is_told_in_a_sentence() -> None:
    spec = torch.__spec__
    assert spec is not None
    spec._initializing = True  # type: ignore[attr-defined]  # as importlib says it
    try:
        for start in (recording.start, recording.start_memory):
            with pytest.raises(RuntimeError, match="still being imported"):
                start({"torch": "auto"})
    finally:
        spec._initializing = False  # type: ignore[attr-defined]
    assert torch_has_no_callback()


def the_profiler_writes_a_file() -> None:
    for library in (observer.load(), None):
        ours = Profiler(library, {"torch": "profiler", "window": "1000000", "force": "", "shapes": ""})
        ours.start()
        torch.ones(2).add(1)
        written = Path(ours.stop())
        assert '"aten::add"' in written.read_text()
        forget_files()
        assert not written.parent.exists()


CASES = (
    nobody_listens_before_the_start_and_after_the_stop,
    nothing_is_recorded_after_the_stop,
    threads_come_and_go,
    an_op_ends_with_the_session_of_its_begin,
    a_throwing_backward_ends_its_ops,
    an_op_that_throws_ends,
    a_thread_that_ends_inside_an_op_leaves_it_open,
    tf32_is_told_of_matrix_products,
    flops_are_what_torch_counts,
    lists_that_do_not_fit_are_cut,
    ids_that_do_not_fit_are_cut_with_their_list,
    ops_of_a_mobile_model_have_debug_handles,
    a_fork_records_nothing_of_the_child,
    torch_profiler_comes_and_goes_meanwhile,
    a_toggling_observer_disturbs_nobody,
    memory_is_told_on_every_thread,
    out_of_memory_is_told,
    the_profiler_writes_a_file,
    profilers_of_torch_do_not_meet,
    torchs_own_profiler_is_never_started_unless_forced,
    a_torch_that_is_being_imported_is_told_in_a_sentence,
    a_profiler_that_was_overtaken_is_not_exported,
    backward_within_backward_runs_on_threads_of_its_own,
)


if __name__ == "__main__":
    torch.set_num_threads(1)
    assert MEMORY
    for case in CASES:
        case()
        print(case.__name__, flush=True)
    os._exit(0)  # the threads of reentrant autograd end torch's own way of ending (docs/torch.md)

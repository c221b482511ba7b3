"""Module calls on every Python that is tested, also where there is no torch: the least of torch.nn.Module."""

from __future__ import annotations

import gc
import struct
import threading
from contextlib import ExitStack
from typing import Any

from tests.support.arena_reader import OPEN_AT_START, Ext, Kind
from tests.support.tracing import Recording, name_of, tracing

SOURCE = """
class Module:
    def __init__(self, **children):
        self._modules = children
    def _wrapped_call_impl(self, *args):
        return self._call_impl(*args)
    __call__ = _wrapped_call_impl
    def _call_impl(self, *args):
        for child in self._modules.values():
            child(*args)
class Linear(Module): pass
class Block(Module): pass
"""


def _model() -> Any:
    scope: dict[str, Any] = {}
    exec(compile(SOURCE, "/somewhere/torch/nn/modules/module.py", "exec"), scope)
    module, block, linear = scope["Module"], scope["Block"], scope["Linear"]
    return module(first=linear(), blocks=module(**{str(number): block(proj=linear()) for number in range(2)}))


def _found(recording: Recording) -> list[tuple[str, str, bool]]:
    """Name, path, and whether it was open at the start: of each module call, in order."""
    assert recording.arena is not None
    found = []
    for event in recording.calls():
        if event.kind is Kind.MODULE:
            raw = event.ext.get(Ext.MODULE)
            path = recording.arena.string(struct.unpack("<I", raw)[0]) if raw else ""
            found.append((event.name, path, bool(event.flags & OPEN_AT_START)))
    return found


def test_names_and_paths() -> None:
    model = _model()
    with tracing(modules=True) as recording:
        model()
    assert _found(recording) == [
        ("nn.Module: Module_0", "", False),
        ("nn.Module: Linear_0", "first", False),
        ("nn.Module: Module_1", "blocks", False),
        ("nn.Module: Block_0", "blocks.0", False),
        ("nn.Module: Linear_1", "blocks.0.proj", False),
        ("nn.Module: Block_1", "blocks.1", False),
        ("nn.Module: Linear_2", "blocks.1.proj", False),
    ]


def test_what_is_called_when_recording_begins_is_known_by_its_name_and_path() -> None:
    model, recordings = _model(), []
    with ExitStack() as ends:
        blocks = model._modules["blocks"]._modules
        blocks["0"]._call_impl = lambda: recordings.append(ends.enter_context(tracing(modules=True)))
        model()
    [recording] = recordings
    assert _found(recording) == [
        ("nn.Module: Module_0", "", True),
        ("nn.Module: Module_1", "blocks", True),
        ("nn.Module: Block_0", "blocks.0", True),
        ("nn.Module: Block_1", "blocks.1", False),
        ("nn.Module: Linear_0", "blocks.1.proj", False),
    ]
    assert all(event.end for event in recording.calls() if event.kind is Kind.MODULE)


def test_what_only_looks_like_a_module() -> None:
    """The code is torch's; what it is called with need not be."""
    module = type(_model())
    with tracing(modules=True) as recording:
        for stranger in (1, "text", None, object()):
            try:
                module._wrapped_call_impl(stranger)
            except AttributeError:
                continue
    events = [event for event in recording.calls() if "_wrapped_call_impl" in event.name]
    assert len(events) == 4
    assert all(event.kind is Kind.PY_CALL and event.end for event in events), "no weak references: an ordinary call"


def test_what_is_called_without_arguments_is_no_module() -> None:
    scope: dict[str, Any] = {}
    source = "class Module:\n  def _wrapped_call_impl(): pass"
    exec(compile(source, "/somewhere/torch/nn/modules/module.py", "exec"), scope)
    with tracing(modules=True) as recording:
        scope["Module"]._wrapped_call_impl()
    (event,) = (event for event in recording.calls() if "_wrapped_call_impl" in event.name)
    assert event.kind is Kind.PY_CALL


class Garbage:
    """In a cycle; when it is collected another thread ends the tracer, as the end of a capture does at any time."""

    def __init__(self, end: threading.Event, ended: threading.Event) -> None:
        self.itself, self._end, self._ended = self, end, ended

    def __del__(self) -> None:
        self._end.set()
        self._ended.wait()


def test_no_garbage_is_collected_while_a_model_is_walked() -> None:
    """Else finalizers run under it, and while they wait others may take away what it works on."""
    module = type(_model())
    model = module(**{str(number): module() for number in range(2_000)})
    end, ended, recordings = threading.Event(), threading.Event(), []

    def ends() -> None:
        end.wait()
        recordings[0].tracer.stop()
        ended.set()

    ending = threading.Thread(target=ends)
    ending.start()
    thresholds = gc.get_threshold()
    try:
        with tracing(modules=True) as recording:
            recordings.append(recording)
            gc.collect()  # counts from 0
            Garbage(end, ended)
            gc.set_threshold(1_000)
            model()
    finally:
        gc.set_threshold(*thresholds)
        end.set()
        ending.join()
    # THEN the finalizer ran as part of the program: what runs under the tracer is not recorded
    assert name_of(Garbage.__del__.__code__) in [event.name for event in recording.calls()]


def test_it_may_be_started_anew_within_a_module() -> None:
    """In one recording: what models it knew of is forgotten, and calls that are open go on."""
    model = _model()
    with tracing(modules=True) as recording:

        def again() -> None:
            recording.tracer.start(modules=True)
            model._modules["blocks"]._modules["1"]()

        model._modules["blocks"]._modules["0"]._call_impl = again
        model()
    names = [name for name, _, _ in _found(recording)]
    assert names.count("nn.Module: Block_0") == 3, "both blocks, numbered anew; the second one again"
    assert all(event.end for event in recording.calls() if event.kind is Kind.MODULE)

"""Module calls on every Python that is tested, also where there is no torch: the least of torch.nn.Module."""

from __future__ import annotations

import struct
from typing import Any

from tests.support.arena_reader import Ext, Kind
from tests.support.tracing import tracing

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


def test_names_and_paths() -> None:
    model = _model()
    with tracing(modules=True) as recording:
        model()
    assert recording.arena is not None
    found = []
    for event in recording.calls():
        if event.kind is Kind.MODULE:
            raw = event.ext.get(Ext.MODULE)
            found.append((event.name, recording.arena.string(struct.unpack("<I", raw)[0]) if raw else ""))
    assert found == [
        ("nn.Module: Module_0", ""),
        ("nn.Module: Linear_0", "first"),
        ("nn.Module: Module_1", "blocks"),
        ("nn.Module: Block_0", "blocks.0"),
        ("nn.Module: Linear_1", "blocks.0.proj"),
        ("nn.Module: Block_1", "blocks.1"),
        ("nn.Module: Linear_2", "blocks.1.proj"),
    ]


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

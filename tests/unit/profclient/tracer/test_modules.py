"""nn.Module calls: their names, and their paths as the model itself has them."""

from __future__ import annotations

import gc
import struct
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.arena_reader import Event, Ext, Kind
from tests.support.tracing import Recording, tracing

torch = pytest.importorskip("torch")
nn: Any = torch.nn


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(4, 4)
        self.out = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.out(self.q_proj(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = Attention()
        self.mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x: Any) -> Any:
        return self.mlp(self.attn(x))


class Model(nn.Module):
    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def _input() -> Any:
    return torch.ones(2, 4)


def _paths(recording: Recording) -> list[tuple[str, str]]:
    """Name and path of each module call, in order."""
    return [(event.name, _path(recording, event)) for event in recording.calls() if event.kind is Kind.MODULE]


def _path(recording: Recording, event: Event) -> str:
    raw = event.ext.get(Ext.MODULE)
    if raw is None:
        return ""
    assert recording.arena is not None
    return recording.arena.string(struct.unpack("<I", raw)[0])


def _called(model: Any, run: Callable[[], object]) -> list[str]:
    """The paths that forward hooks see, each the name that named_modules() gives."""
    names = {id(module): name for name, module in model.named_modules()}
    seen: list[str] = []
    hooks = [
        module.register_forward_pre_hook(lambda module, _: seen.append(names[id(module)])) for module in model.modules()
    ]
    run()
    for hook in hooks:
        hook.remove()
    return seen


def test_paths_are_those_of_named_modules() -> None:
    model, x = Model(), _input()
    expected = _called(model, lambda: model(x))
    with tracing(modules=True) as recording:
        model(x)
    assert [path for _, path in _paths(recording)] == expected
    assert "layers.2.attn.q_proj" in expected


def test_names_count_instances_of_a_class_in_order_of_their_first_call() -> None:
    model, x = Model(layers=2), _input()
    with tracing(modules=True) as recording:
        model(x)
        model(x)
    names = [name for name, _ in _paths(recording)]
    assert names[:6] == [
        "nn.Module: Model_0",
        "nn.Module: Block_0",
        "nn.Module: Attention_0",
        "nn.Module: Linear_0",
        "nn.Module: Linear_1",
        "nn.Module: Sequential_0",
    ]
    assert names[: len(names) // 2] == names[len(names) // 2 :]


def test_calls_inside_are_nested_in_the_module_event() -> None:
    model, x = Model(layers=1), _input()
    with tracing(modules=True) as recording:
        model(x)
    modules = [event for event in recording.calls() if event.kind is Kind.MODULE]
    outer = modules[0]
    assert all(outer.start < event.start and event.end < outer.end for event in modules[1:])
    forwards = [event for event in recording.calls() if event.name.endswith(": forward")]
    assert len(forwards) == len(modules)


def test_without_modules_there_are_names_and_no_paths() -> None:
    model, x = Model(layers=1), _input()
    with tracing() as recording:
        model(x)
    assert all(path == "" for _, path in _paths(recording))
    assert len(_paths(recording)) == 10


def test_a_module_that_two_models_share_has_the_path_of_the_one_that_is_running() -> None:
    shared = nn.Linear(4, 4)
    first, second, x = nn.Sequential(shared), nn.Sequential(nn.ReLU(), shared), _input()
    with tracing(modules=True) as recording:
        for model in (first, second, first):
            model(x)
    assert [path for _, path in _paths(recording)] == ["", "0", "", "0", "1", "", "0"]


def test_a_part_that_is_called_alone_keeps_the_path_it_is_known_by() -> None:
    model, x = Model(), _input()
    with tracing(modules=True) as recording:
        model.layers[1](x)
        model(x)
        model.layers[1](x)
    paths = [path for _, path in _paths(recording)]
    assert paths[:3] == ["", "attn", "attn.q_proj"], "nothing of a model has been seen yet"
    assert "layers.1.attn.q_proj" in paths


def test_modules_that_are_added_meanwhile_are_found() -> None:
    model, x = Model(layers=1), _input()
    with tracing(modules=True) as recording:
        model(x)
        model.layers.append(Block())
        model(x)
    assert ("layers.1.attn.q_proj") in [path for _, path in _paths(recording)]


def test_modules_outside_of_the_model_are_roots_of_their_own() -> None:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = [nn.Sequential(nn.Linear(4, 4))]  # a list registers nothing

        def forward(self, x: Any) -> Any:
            return self.parts[0](x)

    with tracing(modules=True) as recording:
        Hidden()(_input())
    assert [path for _, path in _paths(recording)] == ["", "", "0"]


def test_modules_made_for_one_call() -> None:
    with tracing(modules=True) as recording:
        for _ in range(3000):
            nn.Identity()(1)
    assert [name for name, _ in _paths(recording)] == [f"nn.Module: Identity_{number}" for number in range(3000)]


def test_a_model_may_go_away_during_a_capture() -> None:
    with tracing(modules=True):
        model = Model()
        model(_input())
        gone = weakref.ref(model.layers[0].attn.q_proj)
        del model
        gc.collect()
        assert gone() is None


def test_no_code_of_the_user_runs_for_a_path() -> None:
    class Strange(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.inner(x)

        def named_modules(self, *_: object, **__: object) -> Any:
            raise RuntimeError("asked")

        def __getattr__(self, name: str) -> Any:
            if name in ("_modules", "__dict__"):
                raise RuntimeError("asked")
            return super().__getattr__(name)

        def __hash__(self) -> int:
            raise RuntimeError("asked")

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("asked")

    with tracing(modules=True) as recording:
        Strange()(_input())
    assert [path for _, path in _paths(recording)] == ["", "inner"]


def test_a_forward_that_raises() -> None:
    class Failing(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError(x)

    model, x = nn.Sequential(nn.ReLU(), Failing()), _input()
    with tracing(modules=True) as recording:
        for _ in range(2):
            with pytest.raises(ValueError, match="tensor"):
                model(x)
    assert [path for _, path in _paths(recording)] == ["", "0", "1"] * 2
    assert recording.statistics["resynchronised"] == 0


@pytest.mark.slow
def test_names_agree_with_torch_profiler() -> None:
    model, x = Model(layers=2), _input()
    with torch.profiler.profile(with_stack=True, with_modules=True) as profiler:
        model(x)
    theirs = sorted(event.name for event in profiler.events() if event.name.startswith("nn.Module: "))
    with tracing(modules=True) as recording:
        model(x)
    ours = sorted(name for name, _ in _paths(recording))
    assert ours == theirs

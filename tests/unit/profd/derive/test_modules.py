"""Module paths from hierarchies, stacks and frames."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.derive.modules import PATH_CHARS_MAX, module_paths, path_of_hierarchy, path_of_stack
from profd.events import Kind
from profd.query.averages import Grouping, averages
from profd.query.view import nest

from tests.support.tables import Event, table_of

FRAME = Kind.PYTHON_FUNCTION


@pytest.mark.parametrize(
    ("text", "path"),
    [
        # Those of torch's own test (pull request 61792), and its example of a ResNet.
        ("TOP(C)::forward.A0(A)::forward.", "C.A0"),
        ("TOP(C)::forward.A0(A)::forward.SELF(A)::forward_impl_.SELF(A)::my_new_method.", "C.A0"),
        ("TOP(C)::forward.SELF(C)::call_b.B0(B)::forward.", "C.B0"),
        ("TOP(C)::forward.", "C"),
        (
            "TOP(ResNet)::forward.SELF(ResNet)::_forward_impl.layer1(Sequential)::forward.0(BasicBlock)::forward"
            ".conv1(Conv2d)::forward.SELF(Conv2d)::_conv_forward",
            "ResNet.layer1.0.conv1",
        ),
        ("TOP(C)::forward.INSTANCE_NAME_UNKNOWN(D)::forward.", "C.?(D)"),
        ("TOP(C)::forward.::helper.CALL_FUNCTION::other.", "C"),
        ("TOP()::free.", ""),
        ("", ""),
        ("((((::.)", ""),
    ],
)
def test_hierarchies(text: str, path: str) -> None:
    assert path_of_hierarchy(text) == path


def test_stacks_are_innermost_first() -> None:
    stack = "<built-in function linear>;nn.Module: Linear_0;container.py(1): forward;nn.Module: Sequential_0;main"
    assert path_of_stack(stack) == "Sequential_0.Linear_0"
    assert path_of_stack("main") == ""


def test_frames_around_calls() -> None:
    events = [
        Event("main", 0, 100, FRAME),
        Event("nn.Module: Net_0", 0, 50, FRAME),
        Event("forward", 1, 49, FRAME),
        Event("nn.Module: Linear_0", 2, 20, FRAME),
        Event("aten::linear", 3, 19),
        Event("nn.Module: Linear_1", 20, 40, FRAME),
        Event("aten::linear", 21, 39),
        Event("aten::add", 60, 70),
        Event("nn.Module: Net_0", 10, 30, Kind.USER_ANNOTATION, 1),  # no frame
        Event("aten::mul", 12, 15, thread=1, fields={"module": "TOP(C)::forward.A0(A)::forward."}),
        Event("aten::sub", 16, 17, thread=1, fields={"stack": "f;nn.Module: Linear_7"}),
    ]
    rows = averages(table_of(events), grouping=Grouping(module=True))
    assert {(row.name, row.module, row.count) for row in rows if row.name.startswith("aten")} == {
        ("aten::linear", "Net_0.Linear_0", 1),
        ("aten::linear", "Net_0.Linear_1", 1),
        ("aten::add", "", 1),
        ("aten::mul", "C.A0", 1),
        ("aten::sub", "Linear_7", 1),
    }
    raw = averages(table_of(events), raw=True, grouping=Grouping(module=True))
    assert [row.module for row in raw if row.name == "aten::linear"] == ["Net_0.Linear_0", "Net_0.Linear_1"]


def test_frames_with_names_in_their_model() -> None:
    """As our tracer records them: the outermost module has no name, a part that is called alone has its own."""
    events = [
        Event("nn.Module: Net_0", 0, 50, FRAME),
        Event("nn.Module: Block_0", 1, 49, FRAME, fields={"module": "layers.0"}),
        Event("nn.Module: Linear_0", 2, 20, FRAME, fields={"module": "layers.0.attn.q_proj"}),
        Event("aten::linear", 3, 19),
        Event("nn.Module: Hidden_0", 20, 40, FRAME),
        Event("nn.Module: Linear_1", 21, 39, FRAME, fields={"module": "inner"}),
        Event("nn.Module: Block_1", 60, 70, FRAME, fields={"module": "layers.1"}),
        Event("aten::add", 61, 62),
    ]
    table = table_of(events)
    code, texts = module_paths(table, nest(table, np.ones(len(table), dtype=bool))[0])
    assert [texts[number] for number in code] == [
        "Net_0",
        "Net_0.layers.0",
        "Net_0.layers.0.attn.q_proj",
        "Net_0.layers.0.attn.q_proj",
        "Net_0.layers.0.Hidden_0",
        "Net_0.layers.0.Hidden_0.inner",
        "layers.1",
        "layers.1",
    ]


def test_device_work_has_the_module_of_its_launch() -> None:
    events = [
        Event("nn.Module: Net_0", 0, 50, FRAME),
        Event("cudaLaunchKernel", 5, 6, Kind.RUNTIME),
        Event("kernel", 60, 70, Kind.KERNEL, 9, fields={"linked": 1}),
    ]
    rows = averages(table_of(events), grouping=Grouping(module=True))
    assert {row.name: row.module for row in rows}["kernel"] == "Net_0"


def test_deep_nesting_is_bounded() -> None:
    depth = 20_000
    events = [Event("nn.Module: Deep_0", at, 2 * depth - at, FRAME) for at in range(depth)]
    table = table_of(events)
    _, paths = module_paths(table, nest(table, np.ones(depth, dtype=bool))[0])
    assert max(len(path) for path in paths) == PATH_CHARS_MAX


@given(
    st.lists(
        st.tuples(st.sampled_from(["nn.Module: A_0", "nn.Module: B_0", "f"]), st.integers(0, 20), st.integers(0, 20)),
        min_size=1,
        max_size=15,
    )
)
def test_paths_follow_parents(frames: list[tuple[str, int, int]]) -> None:
    table = table_of(Event(name, start, start + lasting, FRAME) for name, start, lasting in frames)
    parent, _ = nest(table, np.ones(len(table), dtype=bool))
    code, paths = module_paths(table, parent)
    names = table.dictionaries["name"].values
    for row in range(len(table)):
        wanted, at = [], row
        while at != -1:
            name = names[table.columns["name"][at]]
            wanted += [name.removeprefix("nn.Module: ")] if name.startswith("nn.Module") else []
            at = int(parent[at])
        assert paths[code[row]] == ".".join(wanted[::-1])

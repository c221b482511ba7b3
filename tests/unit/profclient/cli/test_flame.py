"""The flame graph: what its boxes are, and that names stay names."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profclient.cli.commands import flame as command
from profclient.cli.flame import layout, memory, svg, terminal
from profclient.cli.flame.differences import Differences, shade
from profclient.cli.flame.layout import Box
from profclient.cli.flame.names import shortened

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = (
    "</text><script>alert(1)</script>",
    '"/><image href="x"',
    "]]>&amp;<b>",
    "\x1b[31m\0\ud800\u202e",
    "x" * 5000,
    "",
)


def node(depth: int, name: str = "work", own: int = 0, **fields: Any) -> dict[str, Any]:
    made = {"depth": depth, "name": name, "kind": "cpu_op", "device_type": "CPU", "count": 1}
    return {**made, "total_ns": own, "self_ns": own, "device_total_ns": 0, "share": None, "recursive": False, **fields}


def places(found: list[Box]) -> list[tuple[str, int, int, int]]:
    return [(box.node["name"], box.depth, box.left, box.width) for box in found]


def test_a_box_is_as_wide_as_what_is_in_it() -> None:
    nodes = [node(0, "step", 10), node(1, "forward", 30), node(2, "mm", 5), node(1, "backward", 7), node(0, "load", 8)]
    assert places(layout.boxes(nodes)) == [
        ("step", 0, 0, 52),
        ("forward", 1, 0, 35),
        ("mm", 2, 0, 5),
        ("backward", 1, 35, 7),
        ("load", 0, 52, 8),
    ]


def test_devices_are_beside_the_threads() -> None:
    kernel = node(2, "gemm", 100, device_type="CUDA", device_total_ns=100)
    nodes = [
        node(0, "mm", 4, device_total_ns=100),
        node(1, "launch", 2, device_total_ns=100),
        kernel,
        node(1, "free", 1),
    ]
    assert places(layout.boxes(nodes)) == [("mm", 0, 0, 7), ("launch", 1, 0, 2), ("free", 1, 2, 1)]
    by_device = layout.boxes(nodes, layout.DEVICE)
    assert places(by_device) == [("mm", 0, 0, 100), ("launch", 1, 0, 100), ("gemm", 2, 0, 100)]


@st.composite
def trees(draw: st.DrawFn) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(0, 40))):
        deepest = found[-1]["depth"] + 1 if found else 0
        found.append(node(draw(st.integers(0, deepest)), draw(st.text(max_size=5)), draw(st.integers(-3, 50))))
    return found


@given(trees(), st.integers(1, 200))
def test_property_boxes_lie_within_their_callers_beside_each_other(tree: list[dict[str, Any]], columns: int) -> None:
    found = layout.boxes(tree)
    assert layout.whole(found) == sum(max(one["self_ns"], 0) for one in tree)
    way: list[Box] = []
    for box in found:
        del way[box.depth :]
        assert len(way) == box.depth
        if way:
            assert way[-1].left <= box.left
            assert box.left + box.width <= way[-1].left + way[-1].width
        way.append(box)
    for depth in {box.depth for box in found}:
        row = [box for box in found if box.depth == depth]
        assert all(first.left + first.width <= second.left for first, second in itertools.pairwise(row))
    assert all(len(line) <= columns for line in terminal.lines(found, columns))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_never_markup(name: str) -> None:
    written = "".join(svg.drawing(layout.boxes([node(0, name, 5)]), name, "what"))
    root = ElementTree.fromstring(written.encode())
    assert {element.tag for element in root.iter()} == {
        *(SVG + tag for tag in ("svg", "style", "text", "g", "title", "rect", "script"))
    }
    assert len(root.findall(f".//{SVG}script")) == 1
    titles = [title.text or "" for title in root.iter(SVG + "title")]
    assert len(titles) == 2
    assert all(character.isprintable() for character in titles[1].replace("\n", ""))


def test_what_nobody_would_see_is_counted() -> None:
    nodes = [node(0, "all day", 1_000_000), node(0, "blink", 1)]
    found = layout.boxes(nodes)
    assert svg.left_out(found) == 1
    assert "blink" not in "".join(svg.drawing(found, "t", "what"))


def test_lines_of_a_terminal() -> None:
    nodes = [node(0, "step", 10), node(1, "/a/train.py(3): forward", 50), node(1, "x", 40), node(0, "load", 100)]
    assert list(terminal.lines(layout.boxes(nodes), 40)) == [
        "▏step 50%           ▏load 50%",
        "▏forward  ▏x",
    ]


@pytest.mark.parametrize(
    ("columns", "text"),
    [(40, "train.py(3): forward"), (10, "forward"), (5, "forw…"), (3, "fo…"), (2, ""), (0, "")],
)
def test_a_name_in_little_room(columns: int, text: str) -> None:
    assert shortened("/home/a/train.py(3): forward", columns) == text


def both(depth: int, name: str, a: int, b: int) -> dict[str, Any]:
    """A node of `merged_diff`."""
    words = {"depth": depth, "name": name, "kind": "cpu_op", "device_type": "CPU", "a_count": 1, "b_count": 0.5}
    return {**words, "a_ns": a, "b_ns": b, "a_device_ns": b, "b_device_ns": a}


def test_a_graph_of_two_is_as_wide_as_the_second_in_the_color_of_the_difference() -> None:
    nodes = [both(0, "f", 100, 160), both(1, "slower", 20, 80), both(1, "gone", 30, 0), both(1, "new", 0, 40)]
    nodes += [both(0, "g", 50, 49)]
    found = Differences(nodes, layout.TIME, "step")
    assert places(found.boxes) == [("f", 0, 0, 160), ("slower", 1, 0, 80), ("new", 1, 80, 40), ("g", 0, 160, 49)]
    assert [found.look(box) for box in found.boxes] == ["more-3", "more-3", "more-3", "alike"]
    assert [found.change(box, 0) for box in found.boxes] == ["+60%", "+300%", "new", "-2%"]
    assert found.words(found.boxes[1], 0) == "slower\nA 20 ns, B 80 ns per step: +300%; calls 1 and 0.5 [cpu_op]"
    other_way = Differences(nodes, layout.DEVICE, "trace")
    assert places(other_way.boxes)[2] == ("gone", 1, 20, 30)
    assert [other_way.look(box) for box in other_way.boxes] == ["less-3", "less-3", "more-3", "alike"]


@pytest.mark.parametrize(
    ("difference", "look"),
    [(100, "more-3"), (50, "more-3"), (49, "more-2"), (12, "more-1"), (3, "alike"), (0, "alike"), (-13, "less-2")],
)
def test_shades_are_of_the_largest_difference(difference: int, look: str) -> None:
    assert shade(difference, 100) == look


def test_where_nothing_differs_nothing_has_a_color() -> None:
    nodes = [both(0, "f", 100_000, 100_030), both(1, "g", 50, 50)]
    found = Differences(nodes, layout.TIME, "step")
    assert {found.look(box) for box in found.boxes} == {"alike"}
    assert {found.look(box) for box in Differences([both(0, "f", 0, 0)], layout.TIME, "step").boxes} == set()


def test_every_look_is_in_the_style_of_the_file() -> None:
    nodes = [both(0, HOSTILE[0], 100, 160), both(0, HOSTILE[1], 50, 49)]
    found = Differences(nodes, layout.TIME, "step")
    drawn = "".join(svg.drawing(found.boxes, "title", "what", svg.Appearance(found.look, found.words)))
    root = ElementTree.fromstring(drawn)
    assert [group.get("class") for group in root.iter(f"{SVG}g")] == ["box all", "box more-3", "box alike"]
    assert len(list(root.iter(f"{SVG}script"))) == 1
    for kind in (f"{way}-{strength}" for way in ("more", "less") for strength in (1, 2, 3)):
        assert drawn.count(f".{kind} rect") == 2  # light and dark
    assert any("+60%" in line for line in terminal.lines(found.boxes, 80, found.change))


def held(depth: int, name: str, count: int, own: int = 0) -> dict[str, Any]:
    """A node of `memory_peak`."""
    words = {"depth": depth, "name": name, "kind": "cpu_op", "device_type": "CPU"}
    return {**words, "bytes": count, "self_bytes": own, "blocks": 2}


def test_memory_at_its_peak_is_as_wide_as_its_bytes() -> None:
    nodes = [held(0, "main", 5000, 1000), held(1, HOSTILE[0], 4000, 4000), held(0, "[memory]", 1000, 1000)]
    found = memory.boxes(nodes)
    assert places(found) == [("main", 0, 0, 5000), (HOSTILE[0], 1, 0, 4000), ("[memory]", 0, 5000, 1000)]
    assert memory.words(found[0], 6000) == "main\n5.0 kB (83.33%), itself 1.0 kB, 2 blocks [cpu_op]"
    assert next(terminal.lines(found, 36, memory.LOOK.told)) == "▏main 5.0 kB                  ▏[mem…"
    root = ElementTree.fromstring("".join(svg.drawing(found, "title", "what", memory.LOOK)))
    assert next(root.iter(f"{SVG}title")).text == "all\n6.0 kB"
    assert len(list(root.iter(f"{SVG}script"))) == 1


def test_the_words_above_a_graph_fit_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command._draw(command._Graph([], "trace 1nghd2qkfv2s6 --step 7: 6.25 s", command._MEANING[layout.TIME], 0), None)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80

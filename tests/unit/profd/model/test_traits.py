"""What traces are like stands in them, and nobody asks which source they are from."""

from __future__ import annotations

import ast
from pathlib import Path

import profd
import pytest
from profd.capture.outcome import StoredTrace, gpu_shortfall
from profd.capture.records import TargetRecord
from profd.model.traits import ATTACHED, SAMPLED, Traits, is_recorder, of_older
from profd.segments.meta import TraceMeta, decode_meta, encode_json

SOURCES = ("sdk", "kineto", "jax", "cuda", "pyspy")
ROOMS = Path(profd.__file__).parent


def test_traces_that_do_not_say_it_are_known_by_the_name_of_their_source() -> None:
    assert [of_older(source) for source in SOURCES] == [ATTACHED, Traits(), Traits(), Traits(), SAMPLED]
    assert [is_recorder(source) for source in (*SOURCES, "import", "nsys")] == [True] * 5 + [False] * 2
    assert decode_meta(b'{"source": "pyspy"}', "x").known_traits == SAMPLED
    assert decode_meta(b'{"source": "import"}', "x").known_traits == Traits()


def test_what_a_trace_says_counts_whatever_its_source() -> None:
    meta = TraceMeta(source="pyspy", traits=Traits(steps=False))
    assert decode_meta(encode_json(meta), "x").known_traits == Traits(steps=False)


@pytest.mark.parametrize(("traits", "missing"), [(Traits(), True), (Traits(device_rows=False), False)])
def test_rows_of_devices_are_missed_where_a_source_records_them(traits: Traits, missing: bool) -> None:
    target = TargetRecord("h", 1, 2, 3, "u", "c", cuda=True, source="new", traits=traits)
    assert bool(gpu_shortfall(StoredTrace("t", 5, gpu_events=0), target)) == missing


def compared(tree: ast.AST) -> set[str]:
    """Words that something is compared with."""
    found = set()
    for node in ast.walk(tree):
        for side in [node.left, *node.comparators] if isinstance(node, ast.Compare) else ():
            found |= {
                each.value for each in ast.walk(side) if isinstance(each, ast.Constant) and type(each.value) is str
            }
    return found


def test_no_code_asks_for_a_source_by_name() -> None:
    for path in sorted(ROOMS.rglob("*.py")):
        if path.parent.name == "decode":  # names of file formats
            continue
        words = compared(ast.parse(path.read_text())) & set(SOURCES) - {"cuda", "jax"}  # those are frameworks, too
        assert not words, f"{path.relative_to(ROOMS)} compares with {sorted(words)}: ask for traits"

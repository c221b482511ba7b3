"""HLO protos: what an instruction was compiled from, and programs that are none."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from profd.derive.timeline.symbols import NOTHING, Symbol, Symbols

from tests.support.hlo import program


def test_an_instruction_has_its_operator_and_its_source() -> None:
    tanh = {"op_name": b"jit(step)/layer/tanh", "source_file": b"/home/x/model.py", "source_line": 7}
    typed = {"op_name": b"layer/mul", "op_type": b"Mul"}
    symbols = Symbols({4: program(tanh=tanh, mul=typed, copy={})})
    assert symbols.of_program(4, "tanh") == Symbol("jit(step)/layer/tanh:", "model.py:7")
    assert symbols.of_program(4, "mul") == Symbol("layer/mul:Mul", "")
    assert symbols.of_program(4, "copy") == Symbol(":", "")
    assert symbols.of_program(4, "other") == symbols.of_program(5, "tanh") == NOTHING


def test_the_source_may_be_a_stack_frame() -> None:
    """As JAX has it since 2026; frames that do not exist are no source."""
    ops: dict[str, Any] = {f"op{frame}": {"op_name": b"x", "stack_frame_id": frame} for frame in (-1, 0, 1, 2, 3)}
    symbols = Symbols({1: program(frames=[("/a/train.py", 3), ("loss.py", 9)], **ops)})
    sources = [symbols.of_program(1, f"op{frame}").source for frame in (-1, 0, 1, 2, 3)]
    assert sources == ["", "", "train.py:3", "loss.py:9", ""]


def test_by_name_the_first_program_is_meant() -> None:
    symbols = Symbols({7: program(a={"op_name": b"seven"}), 3: program(a={"op_name": b"three"}), 5: program("other")})
    assert symbols.of_module("jit_step", "a").framework == "three:"
    assert symbols.of_module("other", "a") == symbols.of_module("nowhere", "a") == NOTHING


def test_texts_that_are_not_utf_8_are_replaced() -> None:
    assert (
        Symbols({1: program(a={"op_name": b"a\xff/b"})}).of_program(1, "a").framework == "a\N{REPLACEMENT CHARACTER}/b:"
    )


@given(st.binary(max_size=200))
def test_fuzz_what_is_no_program_names_nothing(content: bytes) -> None:
    symbols = Symbols({1: content})
    assert symbols.of_program(1, "no such instruction") == NOTHING
    assert symbols.of_module("no such module", "a") == NOTHING


@given(st.integers(0, 400), st.integers(0, 255))
def test_fuzz_damaged_programs(at: int, value: int) -> None:
    content = bytearray(program(frames=[("train.py", 3)], tanh={"op_name": b"layer/tanh", "stack_frame_id": 1}))
    content[at % len(content)] = value
    assert isinstance(Symbols({1: bytes(content)}).of_program(1, "tanh"), Symbol)

"""Our protobuf encoder, read back by protobuf itself."""

from __future__ import annotations

from google.protobuf import wrappers_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, UninterpretedOption
from hypothesis import given
from hypothesis import strategies as st
from profd.export import wire


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_integers(value: int) -> None:
    assert wrappers_pb2.Int64Value.FromString(wire.integer(1, value)).value == value


@given(st.integers(0, (1 << 64) - 1))
def test_unsigned_integers(value: int) -> None:
    assert wrappers_pb2.UInt64Value.FromString(wire.integer(1, value)).value == value


@given(st.floats(allow_nan=False))
def test_doubles(value: float) -> None:
    assert wrappers_pb2.DoubleValue.FromString(wire.double(1, value)).value == value


@given(st.text())
def test_texts(value: str) -> None:
    assert wrappers_pb2.StringValue.FromString(wire.text(1, value)).value == value.encode("utf-8", "replace").decode()


def test_messages_and_high_field_numbers() -> None:
    field = wire.message(2, wire.text(1, "x" * 300), wire.integer(3, 7))
    assert DescriptorProto.FromString(wire.text(1, "m") + field) == DescriptorProto(
        name="m", field=[FieldDescriptorProto(name="x" * 300, number=7)]
    )
    assert UninterpretedOption.FromString(wire.integer(4, 1 << 63)).positive_int_value == 1 << 63


def test_packed() -> None:
    assert wire.packed(1, [1, 300]) == b"\x0a\x03\x01\xac\x02"

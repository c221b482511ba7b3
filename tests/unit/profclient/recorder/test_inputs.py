"""Inputs of record_op against a slow reader of the tag stream in docs/wire-format.md."""

from __future__ import annotations

import gc
import struct
import sys
import weakref
from dataclasses import dataclass
from typing import Any

import pytest
from profclient._recorder import record_op

from tests.support.arena_reader import ASYNC, Ext, Kind
from tests.support.recording import Recording, recording


@dataclass
class Tensor:
    dtype: int
    sizes: tuple[int, ...] | None
    strides: tuple[int, ...] | None


class TagReader:
    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def all(self) -> list[object]:
        values = []
        while self.at < len(self.raw):
            values.append(self.value())
        return values

    def byte(self) -> int:
        self.at += 1
        return self.raw[self.at - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def svarint(self) -> int:
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def f64(self) -> float:
        self.at += 8
        return float(struct.unpack_from("<d", self.raw, self.at - 8)[0])

    def sizes(self, n: int) -> tuple[int, ...]:
        return tuple(self.svarint() for _ in range(n))

    def value(self) -> object:
        tag = self.byte()
        if tag in (1, 2, 3):
            dtype = self.byte()
            if tag == 2:
                return Tensor(dtype, None, None)
            n = self.varint()
            sizes = self.sizes(n)
            return Tensor(dtype, sizes, self.sizes(n) if tag == 1 else None)
        return {
            0: lambda: None,
            4: lambda: [self.value() for _ in range(self.varint())],
            5: self.svarint,
            6: self.f64,
            7: lambda: bool(self.byte()),
            8: lambda: complex(self.f64(), self.f64()),
            9: lambda: [self.svarint() for _ in range(self.varint())],
            10: lambda: [self.f64() for _ in range(self.varint())],
            11: lambda: [bool(self.byte()) for _ in range(self.varint())],
            12: lambda: "other",
        }[tag]()


def inputs_of(session: Recording, *inputs: object) -> tuple[list[object], list[tuple[int, int]]]:
    with record_op("op", inputs):
        pass
    event = session.stop().one("op")
    ids = event.ext.get(Ext.TENSOR_IDS, b"")
    pairs = [tuple(pair) for pair in struct.iter_unpack("<QQ", ids)]
    return TagReader(event.ext.get(Ext.INPUTS, b"")).all(), pairs


def test_scalars_and_lists(session: Recording) -> None:
    given = [None, 1, -(2**40), 2.5, True, 1 + 2j, [1, 2], [0.5], [True, False], (3, 4), [], "text", [1, "x"], [[1]]]
    found, ids = inputs_of(session, *given, 1 << 70, [1 << 70])
    assert found == [*given[:9], [3, 4], [], "other", "other", "other", "other", "other"]
    assert ids == []


def test_numpy_arrays(session: Recording) -> None:
    numpy = pytest.importorskip("numpy")
    base = numpy.zeros((4, 6), numpy.int16)
    view = base[::2, 1:]
    found, ids = inputs_of(session, base, view, numpy.float32(1.0).reshape(()), [base, None, view], base.T)
    assert found == [
        Tensor(2, (4, 6), (6, 1)),
        Tensor(2, (2, 5), (12, 1)),
        Tensor(6, (), ()),
        [Tensor(2, (4, 6), (6, 1)), None, Tensor(2, (2, 5), (12, 1))],
        Tensor(2, (6, 4), (1, 6)),
    ]
    assert ids[0] == (id(base), base.__array_interface__["data"][0])
    assert ids[1] == (id(view), view.__array_interface__["data"][0])
    assert len(ids) == 6


def test_numpy_types(session: Recording) -> None:
    numpy = pytest.importorskip("numpy")
    names = [
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
        "bool",
    ]
    found, _ = inputs_of(session, *[numpy.zeros(1, name) for name in [*names, "datetime64[s]"]])
    assert [array.dtype for array in found] == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 255]  # type: ignore[attr-defined]


def test_torch_tensors(session: Recording) -> None:
    torch = pytest.importorskip("torch")
    base = torch.zeros(2, 3)
    sparse = torch.eye(2).to_sparse()
    half = torch.zeros(1, dtype=torch.bfloat16)
    parameter = torch.nn.Parameter(torch.zeros(5))
    found, ids = inputs_of(session, base, base.t(), [base, half], sparse, parameter, torch.zeros(0))
    assert found == [
        Tensor(6, (2, 3), (3, 1)),
        Tensor(6, (3, 2), (1, 3)),
        [Tensor(6, (2, 3), (3, 1)), Tensor(15, (1,), (1,))],
        Tensor(6, None, None),
        Tensor(6, (5,), (1,)),
        Tensor(6, (0,), (1,)),
    ]
    assert ids[0] == (base._cdata, base.untyped_storage().data_ptr())
    assert ids[1][1] == ids[0][1]
    assert ids[4][1] == 0  # a sparse tensor has no storage


def test_torch_types_are_numbered_as_torch_numbers_them(session: Recording) -> None:
    torch = pytest.importorskip("torch")
    types = {
        torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5,
        torch.float32: 6, torch.float64: 7, torch.complex64: 9, torch.complex128: 10,
        torch.bool: 11, torch.bfloat16: 15,
    }  # fmt: skip
    found, _ = inputs_of(session, *[torch.zeros(1, dtype=dtype) for dtype in types])
    assert [tensor.dtype for tensor in found] == list(types.values())  # type: ignore[attr-defined]


def test_a_subclass_of_tensors_is_not_asked(session: Recording) -> None:
    torch: Any = pytest.importorskip("torch")

    class Nosy(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *_: object, **__: object) -> object:
            raise AssertionError("code of the job was run")

    nosy = torch.zeros(2).as_subclass(Nosy)
    found, _ = inputs_of(session, nosy)
    assert found == [Tensor(255, None, None)]


def test_whatever_speaks_dlpack_is_not_asked_for_its_capsule(session: Recording) -> None:
    class Array:
        shape = (3, 4)
        dtype = "float16"

        def __dlpack__(self) -> object:
            raise AssertionError("a capsule may wait for the device")

    class Symbolic(Array):
        shape = ("n", 4)  # type: ignore[assignment]

    found, ids = inputs_of(session, Array(), Symbolic())
    assert found == [Tensor(5, (3, 4), None), Tensor(5, None, None)]
    assert [storage for _, storage in ids] == [0, 0]


def test_broken_objects_do_no_harm(session: Recording) -> None:
    class Broken:
        def __dlpack__(self) -> None: ...

        @property
        def shape(self) -> object:
            raise RuntimeError

        @property
        def dtype(self) -> object:
            raise RuntimeError

    class Shrinking:
        def __init__(self, items: list[object]) -> None:
            self.items = items

        def __dlpack__(self) -> None: ...

        @property
        def shape(self) -> tuple[int, ...]:
            self.items.clear()
            return (1,)

    items: list[object] = []
    items += [Shrinking(items), Shrinking(items), None]
    found, _ = inputs_of(session, Broken(), items)
    assert found[0] == Tensor(255, None, None)


def test_inputs_that_do_not_fit_are_counted(session: Recording) -> None:
    with record_op("op", [list(range(100_000))]):
        pass
    arena = session.stop()
    assert arena.one("op").ext == {}
    assert arena.lost["too_large"] == 1


def test_nothing_is_kept_alive() -> None:
    numpy = pytest.importorskip("numpy")
    with recording() as session:
        array = numpy.zeros(3)
        gone = weakref.ref(array)
        references = sys.getrefcount(array)
        span = record_op("op", [array, [array]])
        assert sys.getrefcount(array) == references
        del array
        gc.collect()
        assert gone() is None
        with span:
            pass
        assert Ext.INPUTS in session.stop().one("op").ext


def test_what_an_op_says_of_itself(session: Recording) -> None:
    with record_op("forward", sequence=5, forward_thread=7, scope=1, debug_handle=-3):
        pass
    with record_op("far", [], sequence=0, forward_thread=1 << 40, asynchronous=True):
        pass
    with record_op("plain", None, sequence=None):
        pass
    arena = session.stop()
    forward = arena.one("forward")
    assert forward.kind is Kind.OP
    assert (forward.scope, forward.payload) == (1, 6 | 7 << 40)
    assert struct.unpack("<q", forward.ext[Ext.DEBUG_HANDLE]) == (-3,)
    far = arena.one("far")
    assert (far.flags, far.payload) == (ASYNC, 1)
    assert struct.unpack("<Q", far.ext[Ext.FORWARD_THREAD]) == (1 << 40,)
    assert arena.one("plain").payload == 0


def test_misuse_says_what_is_expected() -> None:
    with pytest.raises(TypeError, match="record_op takes a name"):
        record_op(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="inputs are a list or tuple, not int"):
        record_op("x", 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no argument 'color'"):
        record_op("x", color=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="scope is at most 255"):
        record_op("x", scope=256)
    with pytest.raises(OverflowError):
        record_op("x", sequence=-1)

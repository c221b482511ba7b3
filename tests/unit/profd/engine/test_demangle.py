"""C++ symbols as they were written; the expected ones are c++filt's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import _engine

from tests.support.symbols import PLAIN, doubling

pytestmark = pytest.mark.skipif(not _engine.demangles, reason="built without libsupc++.a: nothing is demangled")


def demangled(name: str, name_max: int = 1024, result_max: int = 16384) -> str:
    return _engine.demangle([name], name_max=name_max, result_max=result_max)[0]


@pytest.mark.parametrize(("symbol", "written"), PLAIN)
def test_symbols(symbol: str, written: str) -> None:
    assert demangled(symbol) == written


@pytest.mark.parametrize(
    "name", ["", "t", "Pi", "aten::add", "_Z", "_ZN", "_Z1fi junk", "__Z1fv", "_Z1f\0v", "_Z9f", "é"]
)
def test_what_is_no_symbol_stays(name: str) -> None:
    assert demangled(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "_ZN3c106SymIntcvNS_8SymFloatEEv",  # operator c10::SymFloat()
        "_Z1fIiEDTcl1gfp_EET_",  # decltype(g({parm#1})) f<int>(int)
        "_Z1fISt4pairclclclclccvDpT_XsrlclclclclclclclclclclclclclclclclclI1ADpT_S_1AIS0_vS1_IS0_S2S_ivI_EEEvT_S3_DpRKT0_",
    ],
)
def test_expressions_are_left_alone(name: str) -> None:
    assert demangled(name) == name


def test_a_name_that_stands_for_gigabytes_is_left() -> None:
    assert demangled(doubling(3)) != doubling(3)
    assert demangled(doubling(34)) == doubling(34)


def test_the_limits() -> None:
    symbol, written = PLAIN[0]
    assert demangled(symbol, name_max=len(symbol)) == written
    assert demangled(symbol, name_max=len(symbol) - 1) == symbol
    assert demangled(symbol, result_max=0) == symbol


def test_deep_nesting() -> None:
    assert demangled(f"_Z1f{'P' * 900}i") == f"f(int{'*' * 900})"
    assert demangled(f"_Z1f{'P' * 5000}i", name_max=1 << 20) == f"_Z1f{'P' * 5000}i"  # libstdc++ refuses


_PIECES = st.sampled_from(
    ["S_", "S0_", "S1_", "T_", "T0_", "I", "E", "N", "1A", "P", "R", "DpT_", "J", "St4pair", "XT_E", "cl", "UlvE_"]
)


@given(st.lists(st.tuples(st.integers(2, 100), _PIECES, st.integers(1, 8)), max_size=12), st.sampled_from(PLAIN))
def test_mutated_symbols_property(changes: list[tuple[int, str, int]], case: tuple[str, str]) -> None:
    name = case[0]
    for at, piece, times in changes:
        name = name[:at] + piece * times + name[at:]
    found = demangled(name)
    assert found == name or (len(name) <= 1024 and len(found) <= 16384)


def test_a_string_that_is_no_text_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        _engine.demangle([b"_Z1fv"], name_max=10, result_max=10)  # type: ignore[list-item]

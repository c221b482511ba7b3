"""C++ symbols and what c++filt makes of them."""

from __future__ import annotations

from typing import Final

PLAIN: Final = [
    (
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
        "std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)",
    ),
    ("_Z9vectorAddPKfS0_Pfi", "vectorAdd(float const*, float const*, float*, int)"),
    ("_ZN7cutlass6KernelIN4cute1CILi16EEEEEvT_", "void cutlass::Kernel<cute::C<16> >(cute::C<16>)"),
    ("_Z1fIJiPKdEEvDpT_", "void f<int, double const*>(int, double const*)"),
    ("_ZZN1a1bEvENKUliE_clEi", "a::b()::{lambda(int)#1}::operator()(int) const"),
    ("_Z1fM1AFivERA3_i", "f(int (A::*)(), int (&) [3])"),
    ("_ZNSt6vectorIiSaIiEED1Ev", "std::vector<int, std::allocator<int> >::~vector()"),
    ("_Z1fi.constprop.0", "f(int) [clone .constprop.0]"),
    ("_Z1gILb1EEvv", "void g<true>()"),
]


def doubling(levels: int) -> str:
    """f(A, pair<A, A>, pair<pair<A, A>, pair<A, A>>, …): each parameter is twice as long as the one before."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    parameters = ["1A", "St4pairIS_S_E"]
    for level in range(levels - 1):
        last = f"S{digits[level + 1]}_"
        parameters.append(f"S0_I{last}{last}E")
    return "_Z1f" + "".join(parameters)

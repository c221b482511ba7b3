"""What a collective is, by the names that NCCL, gloo and PyTorch give it."""

from __future__ import annotations

import re
from typing import Final

# The first that a name has: what holds another word stands before it.
OPS: Final = (
    *("reduce_scatter", "all_reduce", "all_gather", "all_to_all", "broadcast", "barrier"),
    *("gather", "scatter", "send_recv", "send", "recv", "reduce"),
)
WAIT_FOR_ALL: Final = frozenset({"reduce_scatter", "all_reduce", "all_gather", "all_to_all", "barrier"})
"""No rank leaves one before the last has come: they say something of clocks."""
UNEVEN: Final = frozenset({"all_to_all", "gather", "scatter"})
"""Each rank may send, or get, as much as it likes: sizes do not tell which is which."""
POINT_TO_POINT: Final = frozenset({"send_recv", "send", "recv"})

_WORDS: Final = tuple((op, op.replace("_", "")) for op in OPS)
# ncclAllReduceRingLLKernel_sum_f32 before NCCL 2.12, ncclKernel_AllReduce_… since, ncclDevKernel_… since 2.19.
_KERNEL: Final = re.compile(r"(nccl|rccl)\w*Kernel_", re.IGNORECASE)
_HOST: Final = re.compile(r"(gloo|mpi):")
_CALL: Final = re.compile(r"record_param_comms\Z|nccl:")
_BYTES: Final = {
    **dict.fromkeys(("byte", "char", "bool", "int8", "uint8", "unsigned char", "signed char"), 1),
    **dict.fromkeys(("half", "bfloat16", "short", "c10::half", "c10::bfloat16", "float16"), 2),
    **dict.fromkeys(("float", "int", "float32", "int32"), 4),
    **dict.fromkeys(("double", "long", "long int", "int64", "float64", "complexfloat"), 8),
}


def op_of(name: str) -> str:
    """`all_reduce` of `ncclDevKernel_AllReduce_Sum_f32`, `gloo:all_reduce` or `allreduce_coalesced`; else empty."""
    plain = name.split("(", 1)[0].replace("_", "").lower()
    return next((op for op, word in _WORDS if word in plain), "")


def is_kernel(name: str) -> bool:
    """Whether a kernel of this name is a collective of NCCL or RCCL."""
    return _KERNEL.match(name) is not None


def is_on_host(name: str) -> bool:
    """Whether a range of this name is a collective as a thread of the host carries it out."""
    return _HOST.match(name) is not None


def is_call(name: str) -> bool:
    """Whether a range of this name is around the launch of a collective's kernel, and may say more of it."""
    return _CALL.match(name) is not None


def bytes_of(dtype: str) -> int:
    """Of one element; 0: not a type that is known."""
    return _BYTES.get(dtype.lower(), 0)


def bus_factor(op: str, ranks: int) -> float | None:
    """Bytes that each link carries for a byte of the full buffer, as nccl-tests counts; None: not defined for it."""
    if ranks < 2:
        return None
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if op in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks
    return 1.0 if op in ("broadcast", "reduce") else None

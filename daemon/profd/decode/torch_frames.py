"""Frames of Python stacks as torch shows them."""

from __future__ import annotations

from typing import Final

# They say how torch was called, not by whom: file and function (torch's filter_stack_entry).
_HIDDEN: Final = (
    ("autograd/__init__", "_make_grads"),
    ("autograd/__init__", "backward"),
    ("torch/tensor", "backward"),
    ("_internal/common_utils", "prof_callable"),
    ("_internal/common_utils", "prof_func_call"),
    ("_internal/common_utils", "prof_meth_call"),
)


def is_shown_frame(frame: str) -> bool:
    """Whether torch shows a frame in stacks."""
    return not any(file in frame and function in frame for file, function in _HIDDEN)

"""The functions of `profclient.recording` without their effect, for where the native recorder cannot be loaded."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class record_function:  # noqa: N801 - the name of the native type
    """Neither records as a context manager nor as a decorator; `end_on` gives its future back."""

    __slots__ = ("name",)
    recorded = False

    def __init__(self, name: str, /, **arguments: object) -> None:
        self.name = name

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, untouched."""
        return function

    def end_on(self, future: Any) -> Any:
        """The future, untouched."""
        return future


def record_op(name: str, inputs: object = (), /, **settings: object) -> record_function:
    """A range without effect."""
    return record_function(name)


def range_push(name: str, /) -> None:
    """No effect."""


def range_pop() -> None:
    """No effect."""


def instant(name: str, /, **arguments: object) -> None:
    """No effect."""


def counter(name: str, value: float, /) -> None:
    """No effect."""


def record_alloc(
    ptr: int,
    bytes: int,  # noqa: A002 - as the native function calls it
    device_type: int = 0,
    device_index: int = -1,
    allocated: int | None = None,
    reserved: int | None = None,
) -> None:
    """No effect."""


def record_out_of_memory(
    bytes: int,  # noqa: A002 - as the native function calls it
    device_type: int = 0,
    device_index: int = -1,
    allocated: int | None = None,
    reserved: int | None = None,
) -> None:
    """No effect."""


def record_backend_event(name: str, start_us: float, end_us: float, /, **arguments: object) -> None:
    """No effect."""


_steps = 0


def step() -> int:
    """The number of the step that begins."""
    global _steps
    _steps += 1
    return _steps - 1

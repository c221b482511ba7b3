"""`emit_nvtx`: this process's ranges and PyTorch's operators as NVTX ranges of another tool, such as Nsight Systems."""

from __future__ import annotations

import sys
from typing import Any

from profclient import _recorder, nvtx
from profclient.agent import NotHonoured
from profclient.errors import UsageError

_active: emit_nvtx | None = None


class emit_nvtx:  # noqa: N801 - as torch.autograd.profiler.emit_nvtx
    """Tells the tool that NVTX_INJECTION64_PATH names (Nsight Systems sets it) of every range while the block runs.

        with profclient.emit_nvtx():
            model(x).backward()

    `record_function` ranges under their names; operators as in torch's own `emit_nvtx`, so that backward
    functions can be found by their forward ops: `aten::mm, seq = 7` in the forward pass made the function that runs
    within `MmBackward0, stashed seq = 7`. With `record_shapes` `, sizes = [[2, 3], []]` follows. Works in builds of
    torch without CUDA, too. Nothing has to be recorded by profd meanwhile, and it may be.

    Operators need an observer for this torch (`profctl torch build`), else torch's own emit_nvtx tells them, where
    its build has CUDA; `missing` says why none are told. UsageError where there is no tool, or one block is in
    another: sentences.
    """

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled
        self.record_shapes = record_shapes
        self.missing = ""
        self._ops: Any = None

    def __enter__(self) -> emit_nvtx:
        global _active
        if not self.enabled:
            return self
        if _active is not None:
            raise UsageError("emit_nvtx is on already; one block cannot be in another.")
        try:
            tool = nvtx.open_tool()
        except NotHonoured as error:
            raise UsageError(f"{error}.") from None
        _active = self
        try:
            self._ops = self._start_ops(*tool)
            _recorder.mirror(*tool)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        global _active
        if _active is not self:
            return
        _active = None
        _recorder.mirror(0, 0)
        ops, self._ops = self._ops, None
        if ops is not None:
            ops()

    def _start_ops(self, push: int, pop: int) -> Any:
        """The function that ends them; None where there are none, and `missing` says why."""
        torch = sys.modules.get("torch")
        if torch is None:
            self.missing = "torch is not imported"
            return None
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # as torch does: what was launched before belongs to nothing here
        from profclient.torch import builds, observer

        try:
            own = observer.load()
        except (builds.Unusable, OSError, AttributeError) as error:
            own, self.missing = None, str(error)
        if own is not None:
            own.start_nvtx(push, pop, self.record_shapes)
            return own.stop_nvtx
        if torch.cuda.is_available():
            theirs = torch.autograd.profiler.emit_nvtx(record_shapes=self.record_shapes)
            theirs.__enter__()
            return lambda: theirs.__exit__(None, None, None)
        self.missing = self.missing or "there is no observer of this torch: profctl torch build"
        return None

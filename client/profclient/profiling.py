"""`with profclient.profile(stacks=True) as p: …`, and what came of it: `print(p.key_averages().table())`.

The block is recorded as `profctl start` would record it: by the local daemon where one listens, which then keeps the
trace; else into a trace of this object's own, by the same engine. Either way nothing of it runs in this process but the
recorder: `profctl` does the asking, in processes of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, overload

from profclient import _recorder
from profclient import recording_sessions as sessions
from profclient.errors import ClientError


class profile:  # noqa: N801 - as torch.profiler.profile
    """Records the block. ClientError when that is not possible; what the block raises passes through.

    `stacks`: Python functions of all threads. `c_calls`: C functions, too. `modules`: nn.Module calls. `shapes`: inputs
    of operators. `memory`, `flops`: of PyTorch's operators. `local`: True: never by the daemon, False: only by it.
    """

    def __init__(
        self,
        *,
        stacks: bool = False,
        shapes: bool = False,
        modules: bool = False,
        c_calls: bool = False,
        memory: bool = False,
        flops: bool = False,
        address: str | None = None,
        local: bool | None = None,
    ) -> None:
        chosen = {
            "stacks": stacks,
            "shapes": shapes,
            "modules": modules,
            "c_calls": c_calls,
            "memory": memory,
            "flops": flops,
        }
        self._options = tuple(name for name, on in chosen.items() if on)
        self._address = address
        self._local = local
        self._session: sessions.Session | None = None
        self._result: sessions.Result | None = None

    def __enter__(self) -> profile:
        _recorder.tracer_pause()  # our waiting is no part of the block
        try:
            self._result = None
            self._session = sessions.begin(self._options, self._address, self._local)
        finally:
            _recorder.tracer_resume()
        return self

    def __exit__(self, kind: object, error: BaseException | None, _traceback: object) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        _recorder.tracer_pause()
        try:
            self._result = session.end()
        except ClientError:
            if error is None:  # else the block's own error is what matters
                raise
        finally:
            _recorder.tracer_resume()

    @property
    def trace(self) -> str:
        """The trace's id, for `profctl`; of a daemon's store unless `store` says otherwise. Empty: nothing happened."""
        return self._known.trace

    @property
    def store(self) -> str:
        """The folder of `profctl --store`, gone with this object; empty: the daemon has the trace."""
        return self._known.store

    @property
    def not_honoured(self) -> list[str]:
        """Sentences about options that could not be served."""
        return list(self._known.not_honoured)

    @property
    def lost(self) -> dict[str, int]:
        """Events that are not in the trace, by reason."""
        return dict(self._known.lost)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> KeyAverages:
        """Times by name, as torch.profiler's `key_averages`."""
        flags = ["--group-by-input-shape"] if group_by_input_shape else []
        flags += ["--group-by-stack-n", str(group_by_stack_n)] if group_by_stack_n else []
        return KeyAverages(self._known, flags)

    def export_chrome_trace(self, path: str) -> None:
        """Write the trace for chrome://tracing and Perfetto."""
        if not self.trace:
            raise ClientError("nothing was recorded: there is no trace to export.")
        self._known.profctl("export", self.trace, "-f", "chrome", "-o", path)

    @property
    def _known(self) -> sessions.Result:
        if self._result is None:
            raise ClientError("nothing has been recorded yet: the block of profile() has to end first.")
        return self._result


class KeyAverages(Sequence[dict[str, Any]]):
    """Rows of `profctl top --json`, one per name, those with the most self time first."""

    def __init__(self, result: sessions.Result, flags: list[str]) -> None:
        self._result = result
        self._flags = flags
        self._rows: list[dict[str, Any]] | None = None

    def table(self, sort_by: str = "self_cpu_time_total", row_limit: int = 100) -> str:
        """The rows as text; `row_limit` 0: all. ClientError for an unknown key, naming those there are."""
        if not self._result.trace:
            return "nothing was recorded\n"
        arguments = ("top", self._result.trace, "--sort-by", sort_by, "--limit", str(row_limit), *self._flags)
        return self._result.profctl(*arguments)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All of them; times in ns."""
        if self._rows is None and not self._result.trace:
            self._rows = []
        elif self._rows is None:
            self._rows = json.loads(self._result.profctl("top", self._result.trace, "--json", *self._flags))
        return self._rows

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __str__(self) -> str:
        return self.table()

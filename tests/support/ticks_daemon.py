"""`python -m tests.support.ticks_daemon …`: profd with the source of `docs/adding-a-source.md` beside its own."""

from __future__ import annotations

import os
import sys

from profd import main
from profd.service import assembly
from profd.sources.base import Source

from tests.support.ticks_source import READINGS_MAX, TicksSource


class _Daemon(assembly.Daemon):
    def _make_sources(self) -> list[Source]:
        readings_max = int(os.environ.get("TICKS_READINGS_MAX", READINGS_MAX))
        return [*super()._make_sources(), TicksSource(self._leases, readings_max)]


if __name__ == "__main__":
    assembly.Daemon = _Daemon  # `main` takes it from there
    sys.exit(main.main())

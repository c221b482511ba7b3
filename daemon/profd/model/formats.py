"""The formats of `profctl export`, by name: docs/adding-an-export.md says what else a new row needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Format:
    """What a format can do. `write` of `profd/export/NAME.py` writes it (`export/jobs.py` has its arguments)."""

    derives_flows: bool = False  # `write` takes `derived_flows`, which adds links that were not recorded
    redacts: bool = False  # made from nothing but what a reader shows
    gzips: str = ""  # "always": its readers expect it; "never": it is compressed already
    merges: bool = False  # `write_merged` writes all traces of a capture on one axis
    of_traces: bool = True  # False: of captures alone, and there is no `write`


FORMATS: Final[dict[str, Format]] = {
    "chrome": Format(derives_flows=True, redacts=True, merges=True),
    "perfetto": Format(redacts=True, merges=True),
    "perfetto-archive": Format(redacts=True, merges=True, of_traces=False),
    "folded": Format(),
    "speedscope": Format(),
    "pprof": Format(gzips="always"),
    "xspace": Format(),
    "parquet": Format(gzips="never"),
    "bundle": Format(redacts=True, gzips="never"),
}

"""The programs of the storm: how each is started, and what it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Program:
    """One file of `kindness/programs`. `share`: how often it is taken, beside others."""

    name: str
    share: float = 1.0
    rest: float = 0.02  # seconds between its turns: many of them share a machine
    torch: bool = False
    versions: tuple[str, ...] = ("3.11", "3.12", "3.13")
    memory_bytes: int = 0  # of a memory cgroup of its own
    attached: bool = True  # under `profctl run`; else it attaches itself
    environment: tuple[tuple[str, str], ...] = ()


_UNMAPPED: Final = (("MALLOC_MMAP_THRESHOLD_", "4096"), ("MALLOC_MMAP_MAX_", "10000000"))

PROGRAMS: Final = (
    Program("train", share=5, torch=True),
    Program("uaf", share=5, torch=True, environment=_UNMAPPED),
    Program("hooks", share=1, torch=True),
    Program("inference", share=1, torch=True, rest=0.03),
    Program("audit", share=4, rest=0.05),
    Program("mods", share=4),
    Program("ballast", share=4, memory_bytes=50 << 20),
    Program("audit_raises", rest=0.03),
    Program("aio", rest=0.03),
    Program("workers", rest=0.02),
    Program("forks", rest=0.05),
    Program("generators"),
    Program("signals"),
    Program("garbage", rest=0.03),
    Program("imports", rest=0.02),
    Program("interpreters", rest=0.05),
    Program("ranges", rest=0.03, attached=False),
    Program("execs"),
)

"""Random options of captures. `force` is never among them: it is the user's own risk."""

from __future__ import annotations

import random

from profproto.v1 import capture_pb2

from kindness.catalog import Program


def options(program: Program, chance: random.Random) -> capture_pb2.Options:
    """Of one capture; short ones mostly, since harm comes at their ends. Without duration or iterations: open-ended."""
    asked = capture_pb2.Options(source="sdk" if chance.random() < 0.95 else "")
    _window(asked, chance)
    _contents(asked, chance, 0.3 if program.torch else 0.95)
    if program.torch:
        _torch(asked, chance)
    if chance.random() < 0.1:
        asked.max_overhead = chance.choice((0.01, 0.05, 0.5))
    return asked


def _window(asked: capture_pb2.Options, chance: random.Random) -> None:
    kind = chance.random()
    if kind < 0.1:
        asked.iterations = chance.choice((1, 2, 5))
    elif kind < 0.85:
        longest = 1000 if chance.random() < 0.1 else 60
        asked.duration_ns = int(chance.choice((1, 5, 10, 20, 50, chance.uniform(1, longest))) * 1e6)


def _contents(asked: capture_pb2.Options, chance: random.Random, stacks: float) -> None:
    if chance.random() < stacks:  # most programs have nothing else to record
        asked.stacks = True
        asked.c_calls = chance.random() < 0.4
    asked.modules = chance.random() < 0.2
    asked.memory = chance.random() < 0.2
    if chance.random() < 0.1:
        asked.sample_hz = 100


def _torch(asked: capture_pb2.Options, chance: random.Random) -> None:
    asked.shapes = chance.random() < 0.5
    asked.flops = chance.random() < 0.2
    if chance.random() < 0.3:
        asked.torch = chance.choice(("auto", "observer", "profiler"))

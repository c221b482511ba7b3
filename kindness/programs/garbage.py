"""Cyclic garbage with finalizers, weak references, callbacks of the collector."""

import gc
import weakref

from turns import expect, turns

finalized = []
phases = []


class Node:
    """Of a cycle."""

    def __init__(self):
        self.other = self

    def __del__(self):
        finalized.append(1)


def phase(name, info):
    """A callback of the collector."""
    phases.append(name)


gc.callbacks.append(phase)
for _ in turns():
    finalized.clear()
    phases.clear()
    nodes = [Node() for _ in range(100)]
    references = [weakref.ref(node) for node in nodes]
    del nodes
    gc.collect()
    expect("finalized", len(finalized), 100)
    expect("dead references", sum(reference() is None for reference in references), 100)
    expect("begins and ends", phases.count("start"), phases.count("stop"))
gc.callbacks.remove(phase)

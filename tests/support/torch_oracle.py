"""Key averages the slow, obvious way: objects and loops, as torch.profiler builds its tables.

For comparison only. It knows CPU calls and device rows that name their op by
an external id; times are ns. Where it is not torch: functions that call
themselves wrap nothing, and their totals are those of their outermost calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from profd.events import Kind

from tests.support.tables import ON_DEVICE, Event

HIDDEN = {
    *("aten::is_leaf", "aten::_version", "aten::output_nr", "[memory]"),
    *("profiler::_record_function_enter", "profiler::_record_function_enter_new", "profiler::_record_function_exit"),
}


FUNCTIONS = (Kind.PYTHON_FUNCTION, Kind.SAMPLE)


@dataclass
class Node:
    event: Event
    name: str
    order: int
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    kernels: list[int] = field(default_factory=list)

    @property
    def lasting(self) -> int:
        return (self.event.end or 0) - self.event.start

    @property
    def again(self) -> bool:
        """Whether it is a call of a function within another one of the same."""
        around = self.parent
        while around is not None and self.event.kind in FUNCTIONS:
            if around.event.kind in FUNCTIONS and around.name == self.name:
                return True
            around = around.parent
        return False

    @property
    def device_time(self) -> int:
        return sum(self.kernels) + sum(child.device_time for child in self.children)


def torch_table(events: list[Event]) -> dict[tuple[str, str], list[int]]:
    """(name, device) -> [count, CPU total, self CPU, device total, self device]."""
    ordered = sorted(events, key=lambda event: event.start)
    nodes = [
        Node(event, "ProfilerStep*" if event.name.startswith("ProfilerStep#") else event.name, order)
        for order, event in enumerate(ordered)
        if event.name not in HIDDEN
    ]
    calls = [node for node in nodes if node.event.kind not in ON_DEVICE]
    work = [node for node in nodes if node.event.kind in ON_DEVICE]
    _nest(calls)
    by_id = {node.event.fields.get("external"): node for node in calls if node.event.kind is Kind.CPU_OP}
    for node in work:
        owner = by_id.get(node.event.fields.get("external"))
        if owner is not None and node.event.fields.get("external") is not None:
            owner.kernels.append(node.lasting)
    calls = _without_duplicates(calls)
    table: dict[tuple[str, str], list[int]] = {}
    for node in calls:
        own = node.lasting - sum(child.lasting for child in node.children)
        total = [0, 0] if node.again else [node.lasting, node.device_time]
        _add(table, (node.name, "CPU"), [1, total[0], own, total[1], sum(node.kernels)])
    for node in work:
        _add(table, (node.name, "CUDA"), [1, 0, 0, node.lasting, node.lasting])
    return table


def _nest(calls: list[Node]) -> None:
    for thread in {node.event.thread for node in calls}:
        stack: list[Node] = []
        of_it = [node for node in calls if node.event.thread == thread]
        for node in sorted(of_it, key=lambda node: (node.event.start, -(node.event.end or 0))):
            while stack:
                top = stack[-1].event
                if node.event.start >= (top.end or 0) or (node.event.end or 0) > (top.end or 0):
                    stack.pop()
                else:
                    node.parent = stack[-1]
                    stack[-1].children.append(node)
                    break
            stack.append(node)


def _without_duplicates(calls: list[Node]) -> list[Node]:
    kept = sorted(calls, key=lambda node: (node.event.start, -(node.event.end or 0), node.order))
    while True:
        doomed = set()
        for node in kept:
            parent = node.parent
            if parent is None or parent.event.kind in FUNCTIONS or node.event.kind in FUNCTIONS:
                continue
            if parent.name == node.name and len(parent.children) == 1:
                parent.children, parent.kernels = node.children, node.kernels
                for child in node.children:
                    child.parent = parent
                doomed.add(id(node))
        if not doomed:
            return kept
        kept = [node for node in kept if id(node) not in doomed]


def raw_table(events: list[Event]) -> dict[tuple[str, str], list[int]]:
    """The same of every event as recorded; the parent is sought among all, by definition."""
    ordered = sorted(events, key=lambda event: event.start)
    table: dict[tuple[str, str], list[int]] = {}
    apart = (Kind.OVERHEAD, Kind.TRACE)
    children = [0] * len(ordered)
    parent: list[int | None] = [None] * len(ordered)
    nesting = [at for at, event in enumerate(ordered) if event.kind not in ON_DEVICE and event.kind not in apart]
    rank = {
        at: place
        for place, at in enumerate(sorted(nesting, key=lambda at: (ordered[at].start, -_end(ordered[at]), at)))
    }
    for at in nesting:
        event = ordered[at]
        around = [
            other
            for other in nesting
            if rank[other] < rank[at]
            and ordered[other].thread == event.thread
            and event.start < _end(ordered[other])
            and _end(event) <= _end(ordered[other])
        ]
        if around:
            parent[at] = innermost = max(around, key=rank.__getitem__)
            children[innermost] += _end(event) - event.start

    def again(at: int) -> bool:
        around = parent[at]
        while around is not None and ordered[at].kind in FUNCTIONS:
            if ordered[around].kind in FUNCTIONS and ordered[around].name == ordered[at].name:
                return True
            around = parent[around]
        return False

    for at, event in enumerate(ordered):
        lasting = _end(event) - event.start
        if event.kind in ON_DEVICE:
            _add(table, (event.name, "CUDA"), [1, 0, 0, lasting, lasting])
        else:
            _add(table, (event.name, "CPU"), [1, 0 if again(at) else lasting, lasting - children[at], 0, 0])
    return table


def _end(event: Event) -> int:
    return event.start if event.end is None else event.end


def _add(table: dict[tuple[str, str], list[int]], key: tuple[str, str], values: list[int]) -> None:
    have = table.setdefault(key, [0] * len(values))
    have[:] = [a + b for a, b in zip(have, values, strict=True)]

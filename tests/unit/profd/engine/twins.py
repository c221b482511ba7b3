"""Slow, obvious twins of the native kernels: definitions, not algorithms."""

from __future__ import annotations

from dataclasses import dataclass

ABSENT = -(2**63)
FOREVER = 2**63 - 1
NESTS, FRAME, TIMED, OP, LAUNCH, DEVICE, MUST_LAUNCH, MUST_LINK = (1 << bit for bit in range(8))


@dataclass
class Row:
    start: int
    end: int
    thread: int
    role: int = NESTS | FRAME | TIMED
    forward: int = -1


def clamp(value: int) -> int:
    return max(-FOREVER, min(FOREVER, value))


def crossings(rows: list[Row], include: list[bool]) -> bool:
    """Whether any two of a thread overlap and neither contains the other."""
    spans = [
        (row.thread, row.start, max(row.end, row.start))
        for row, counts in zip(rows, include, strict=True)
        if counts and row.thread >= 0
    ]
    return any(a[0] == b[0] and a[1] < b[1] < a[2] < b[2] for a in spans for b in spans)


def nest(rows: list[Row], include: list[bool]) -> tuple[list[int], list[int]]:
    """The parent is the last to come, of those that contain a row, in (start, longer first) order."""
    end = [max(row.end, row.start) for row in rows]
    order = sorted(range(len(rows)), key=lambda i: (rows[i].start, -end[i], i))
    parent = [-1] * len(rows)
    for at, i in enumerate(order):
        for j in order[:at]:
            inside = end[j] >= end[i] and end[j] > rows[i].start
            alike = rows[i].thread == rows[j].thread >= 0
            if inside and alike and include[i] and include[j]:
                parent[i] = j
    own = [clamp(end[i] - row.start) for i, row in enumerate(rows)]
    self_time = list(own)
    for i in order:
        if parent[i] >= 0:
            self_time[parent[i]] = clamp(self_time[parent[i]] - own[i])
    return parent, self_time


@dataclass
class Tree:
    parent: list[int]
    depth: list[int]
    self_time: list[int]
    flow_row: list[int]
    partial_overlap: int
    no_end: int


def tree(rows: list[Row], flows: list[tuple[int, int, int]]) -> Tree:
    """The parent is the frame that came last among those still open; flows are (thread, time, want)."""

    def recorded(i: int) -> int:
        row = rows[i]
        return FOREVER if row.end == ABSENT and row.role & FRAME else max(row.end, row.start)

    count = len(rows)
    order = sorted(range(count), key=lambda i: (rows[i].start, -recorded(i), i))
    parent, depth, closes, end = [-1] * count, [0] * count, [0] * count, [recorded(i) for i in range(count)]
    result = Tree(parent, depth, [ABSENT] * count, [], 0, 0)
    placed: list[int] = []
    for i in order:
        row = rows[i]
        closes[i] = end[i]
        if row.role & NESTS and row.thread >= 0:
            result.no_end += end[i] == FOREVER

            def open_on(thread: int, start: int = row.start) -> list[int]:
                frames = (
                    j for j in placed if rows[j].thread == thread and rows[j].role & NESTS and rows[j].role & FRAME
                )
                return [j for j in frames if closes[j] > start]

            around = open_on(row.thread)
            beside = open_on(row.forward) if not around and row.forward not in (-1, row.thread) else []
            if beside:
                parent[i] = beside[-1]
                depth[i] = depth[beside[-1]] + 1
                if end[i] == FOREVER:
                    closes[i] = end[i] = end[beside[-1]]
            if around:
                parent[i] = around[-1]
                depth[i] = depth[around[-1]] + 1
                if end[i] == FOREVER:
                    end[i] = end[around[-1]]
                elif end[i] > closes[around[-1]]:
                    result.partial_overlap += 1
                closes[i] = min(end[i], closes[around[-1]])
        placed.append(i)
    for i, row in enumerate(rows):
        endless = end[i] == FOREVER or (row.end == ABSENT and not row.role & FRAME)
        if row.role & TIMED and not endless:
            result.self_time[i] = (
                end[i]
                - row.start
                - sum(
                    closes[c] - rows[c].start for c in range(count) if parent[c] == i and rows[c].thread == row.thread
                )
            )
    for thread, time, want in flows:
        result.flow_row.append(bind(rows, order, closes, thread, time, want))
    return result


def bind(rows: list[Row], order: list[int], closes: list[int], thread: int, time: int, want: int) -> int:
    here = [i for i in order if rows[i].thread == thread >= 0 and rows[i].start <= time]
    starting = [i for i in here if rows[i].start == time and rows[i].role]
    ops = [i for i in starting if rows[i].role & OP]
    calls = [i for i in starting if rows[i].role & (LAUNCH | DEVICE)]
    if want == 1 and ops:
        return ops[-1]
    if want == 2 and calls:
        return calls[0]
    if starting:
        return starting[-1]
    nesting = [i for i in here if rows[i].role & NESTS]
    frames = [i for i in nesting if rows[i].role & FRAME and closes[i] > rows[i].start and closes[i] >= time]
    # A frame that ends at `time` is gone once a neighbour starts there, or after it.
    open_frames = [
        i for i in frames if not any(rows[k].start >= closes[i] for k in nesting if order.index(k) > order.index(i))
    ]
    if open_frames:
        return open_frames[-1]
    flat = [i for i in here if not rows[i].role & NESTS]
    if flat and max(rows[flat[-1]].end, rows[flat[-1]].start) >= time:
        return flat[-1]
    return -1


def links(rows: list[tuple[int, int, int]]) -> list[int]:
    """Rows are (correlation, group, role): the latest launch before a device row, else the first after it."""
    linked = []
    for i, (correlation, group, role) in enumerate(rows):
        calls = [
            j
            for j, (c, g, r) in enumerate(rows)
            if r & LAUNCH and not r & DEVICE and (c, g) == (correlation, group) and correlation not in (0, ABSENT)
        ]
        before, after = [j for j in calls if j < i], [j for j in calls if j > i]
        if not role & DEVICE:
            linked.append(-1)
        else:
            linked.append(before[-1] if before else after[0] if after else -1)
    return linked


def subtree_sums(own, parent):
    """Each row's own value, added to it and to all above it."""
    total = [0] * len(own)
    for row, value in enumerate(own):
        above = row
        while above >= 0:
            total[above] += value
            above = parent[above]
    return total

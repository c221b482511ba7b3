"""Hot loops of the trace engine over columns (C++; sources in `native/engine`).

All arrays are one-dimensional, contiguous and of exactly the dtype named: a
wrong dtype is a TypeError; wrong lengths, unsorted rows and codes out of range
are a ValueError. The GIL is released while they run. Linear time, no recursion.
"""

from typing import Any, overload

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
UInt8 = npt.NDArray[np.uint8]
Float64 = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

demangles: bool  # False: built without a demangler, `demangle` changes nothing

def demangle(names: list[str], *, name_max: int, result_max: int) -> list[str]:
    """The names with C++ symbols (`_Z…`) as they were written.

    What is none stays as it is, and so does one of more than `name_max` bytes, or that stands for more than
    `result_max` bytes (in steps of 255).
    """

def argsort(keys: Int64) -> Int64:
    """The stable order that sorts `keys` ascending: `keys[argsort(keys)]`."""

def nest(
    start: Int64, end: Int64, thread: Int32, include: UInt8, *, threads_max: int = 4194304
) -> tuple[Int64, Int64, int]:
    """Strict interval nesting: (parent row or -1, self time in ns, partial overlaps).

    Rows are in start order. A row's parent is the innermost row on the same
    thread track that contains it fully and starts before it ends; partial
    overlap is not nesting. Of equal starts the longer encloses, of equal
    intervals the earlier row. A row at its neighbour's end is not inside it.
    Self time is the own duration less that of the direct children. Rows with
    `include` 0 or thread -1 are neither parents nor children: parent -1, self
    time = duration. An end that is absent or before the start counts as start.
    """

def durations(start: Int64, end: Int64) -> Int64:
    """`end - start`, saturating; 0 where the end is absent or before the start."""

def allowed(rules: list[tuple[UInt8 | Int32 | Int64, UInt8]]) -> UInt8:
    """Of each row the bits that its codes allow in every column: `table[code]` of all (column, table), and-ed.

    Code -1 stands for a table's last entry.
    """

def sum_groups(
    keys: list[tuple[UInt8 | Int32 | Int64, int]], counted: UInt8, values: list[Int64]
) -> tuple[Int32, Int64, Int64, list[Int64]]:
    """GROUP BY: (group of each row, first row of each group, how many of its rows count, its sum of each of `values`).

    Groups are in order of first row. `keys`: columns of codes below a number, of which -1 stands for the last.
    Sums are over all rows of a group; they saturate, absent values are skipped.
    """

def sum_stored(
    name: Int32,
    names: int,
    kind: Int32,
    device: Int32,
    phase: Int32 | None,
    lasting: Int64,
    own: Int64,
    fits: UInt8,
    phases: UInt8,
) -> tuple[Int32, Int64, Int64, Int64, Int64] | None:
    """GROUP BY name and device: (group of each row, first row, count, sum of `lasting`, sum of `own` on the CPU).

    None where a row's own time may be another than that of strict nesting: its kind does not fit (`fits`: for each
    kind, of 256, 0 where it does not; one table for rows of no known device, one for the CPU, one for devices), its
    phase does not (`phases`, as many), it lasts less than nothing, or it lasts and has no own time. Or a code is none.
    """

def count_pairs(
    group: Int32,
    groups: int,
    name: Int32,
    wanted: UInt8,
    kind: Int32 | UInt8,
    of_kind: int,
    code: Int32,
    codes: int,
    counted: UInt8 | None = None,
) -> tuple[Int64, Int64]:
    """Of each pair of a group and a code: (its first row, how many rows).

    Of rows of one kind that are counted (not 0; None: all are) and have a name that is wanted (a flag each; the last is
    for no name). Rows whose code is -1, or not below `codes`, are left out.
    """

def call_times(
    role: UInt8, name: Int32, parent: Int64, lasting: Int64, own: Int64, launched: Int64
) -> tuple[Int64, UInt8, UInt8]:
    """(device time with all below, which rows are calls, which were merged with their wrapper), as in torch's tables.

    A call that is the only child of one with its name is merged with it. `role`: bits of `profd/query/roles.py`.
    `lasting`, `own` (self time) and `launched` (device time of its own) are in ns; on return they are what the row
    counts with: 0 in rows that are no calls, and device rows have device times only.
    """

def group_rows(columns: list[Int64]) -> tuple[Int64, Int64]:
    """GROUP BY: (group number of each row, first row of each group), groups in order of first row."""

def sum_by(group: Int64, groups: int, values: Int64) -> Int64:
    """Sum of `values` in each of `groups` groups; absent values are skipped, sums saturate."""

def typical_of_steps(group: Int64, groups: int, step: Int64, steps: int, values: Int64) -> tuple[Float64, Float64]:
    """(median, median deviation from it) of the sums of `values` in each of `steps` steps, for each group.

    A group's sum in a step that it is not seen in is 0; no array of groups times steps is made. Absent values are
    skipped, sums saturate.
    """

def page_headers(data: bytes) -> list[tuple[int, int, int, int, int, int, int, int]]:
    """Of the pages of a Parquet column: kind, place and bytes of the body, these unpacked, values, encoding, encoding
    of its levels, checksum (-1: it has none). ValueError for what our writer does not write.
    """

def unpack_numbers(
    body: UInt8, *, nullable: bool, encoding: int, width: int, words: Int64 | None, out: Array, absent: int
) -> int:
    """Decode a page of numbers of `width` bytes, or of codes for `words`, into `out`: uint8, uint16, int32 or int64.

    `absent` stands in rows without a value, and numbers that do not fit are cut. How many rows have a value. ValueError
    for a page that is not as our writer writes it; `out` holds anything then.
    """

def unpack_words(body: UInt8, count: int) -> tuple[Int32, UInt8]:
    """A page of so many words: where each begins and where the last one ends, and their bytes."""

def subtree_sums(own: Int64, parent: Int64) -> Int64:
    """Sum of `own` over each row and all below it, saturating; a negative parent is none.

    Rows on a circle of parents keep what lies below the circle, and nothing is said of it.
    """

def nearest_above(parent: Int64, wanted: UInt8, rows: Int64) -> Int64:
    """For each of `rows` the nearest row above it that is wanted, -1 where there is none or parents form a circle."""

def outermost(group: Int64, groups: int, among: UInt8, parent: Int64) -> UInt8:
    """1 where no row above a row is among those with its group, and for all rows that are not among them.

    `parent` as for `nearest_above`; nothing is above rows on a circle.
    """

def call_paths(key: Int32, folds: UInt8, parent: Int64) -> tuple[Int64, Int64, Int64, UInt8]:
    """All calls of one path together: (path of each row, path above each path or -1, its first row, outermost rows).

    A path is the keys of all rows above a row and its own; paths are in order of first row, from roots down. Where
    the end of a path repeats what is before it (f > f; f > g > f > g), up to 8 keys long and of keys that fold
    (`folds[key]`), it is the path without the repetition. A row is outermost where no row above has its path.
    """

def next_on_thread(thread: Int32, among: UInt8, rows: Int64, *, threads_max: int = 4194304) -> Int64:
    """For each of `rows` (ascending) the next row of its thread that is among those, or -1."""

def match_ids(ids: Int64, among: UInt8, wanted: Int64) -> Int64:
    """For each wanted id the row among those that has it; -1 where none or several have. Ids are positive."""

def recode(codes: Int32, table: Int32, out: Int32) -> None:
    """`table[codes]` into `out`; codes beyond the table get its last entry."""

@overload
def fill_nulls(values: Int64, valid: UInt8, offset: int, absent: int) -> None:
    """Set the values whose bit in `valid` (least significant first, from bit `offset` on) is 0, in place."""

@overload
def fill_nulls(values: Int32, valid: UInt8, offset: int, absent: int) -> None: ...
def gather(parts: list[Array], order: Int64) -> Array:
    """The rows `order` of what the parts, arrays of one type with items of up to 8 bytes, are one after the other."""

def places(order: Int64, rows: int) -> Int64:
    """For each of so many rows where `order` has it; -1: nowhere. The inverse of a permutation, or of a part of one."""

def presence(values: Int64 | Int32 | UInt8 | Float64, absent: float) -> int:
    """In which rows there is something else than `absent` (of floats: a number): 0 in none, 1 in some, 2 in all."""

def validity(values: Int64 | Int32 | UInt8 | Float64, absent: float) -> UInt8:
    """A bit for each row, least significant first: 1 where `presence` finds something."""

def compact_codes(codes: Int32, words: int) -> tuple[Int32, Int32]:
    """(each code as a place in the list of those that occur, that list ascending). Absent codes (-1) get place 0."""

def roles(
    kind: UInt8,
    device_type: UInt8,
    phase: UInt8 | None,
    is_async: UInt8 | None,
    *,
    tables: UInt8,
    overlapping_phases: UInt8,
    host_max: int,
    overlapping: int,
) -> tuple[UInt8, int]:
    """(role of each row, all of them or-ed); `profd/tree/roles.py` has the tables.

    `tables`: 256 roles by kind for the host, then 256 for devices, which are the device types above `host_max`.
    Rows that are async, or of an overlapping phase, keep the bits `overlapping` only.
    """

def match_forward(
    start: Int64, sequence: Int64, forward: Int64, forward_thread: Int32, backward: Int64, backward_thread: Int32
) -> tuple[Int64, Int64]:
    """For each backward op the forward ops of its thread and number: (the last that starts no later, the first), or -1.

    `forward`, `backward`: rows, ascending; their threads: one number for each of them.
    """

def tensor_islands(process: Int32, action: UInt8, impl: Int64, storage: Int64) -> Int64:
    """The island of each record (0 an input of an op, 1 an allocation, 2 a free), in time order; -1: no tensor.

    A storage lives under its address from its first record to its free. Inputs with one impl join the storages
    they had. Islands are numbered by their first storage; storages that no input had are none. Address 0: undefined.
    """

class TreeBuilder:
    """Stack replay per thread with open stacks carried from segment to segment.

    `threads` is the number of thread tracks. Roles are the bits of
    `native/engine/roles.h`. The rules are told in `profd/tree/build.py`.
    """

    partial_overlap: int
    no_end: int
    rows: int
    threads: int

    def __init__(self, threads: int, *, threads_max: int = 4194304) -> None: ...
    def grow(self, threads: int, *, threads_max: int = 4194304) -> None:
        """There are so many thread tracks from now on."""

    def add_flows(self, thread: Int32, time: Int64, want: UInt8) -> None:
        """The next flow records, in time order, before the segment with the rows that start then.

        `want`: what a record would rather bind to among the rows that start at its
        time: 1 an op, 2 a launch or device row, 0 whatever is innermost.
        """

    def take_flows(self) -> tuple[Int64, Int32]:
        """(row or -1, its depth) of the records that were reached since the last call, in their order.

        Rows that do not nest have no depth here (-1): a link may give them one.
        """

    def feed(
        self, start: Int64, end: Int64, thread: Int32, role: UInt8, forward: Int32 | None = None
    ) -> tuple[Int64, Int32, Int64]:
        """(parent, depth, self time) of the next rows; self times of rows still open are absent for now.

        `forward`: of a backward op the thread of its forward op, else -1.
        """

    def advance(self, time: int) -> None:
        """Bind the records before `time`: no row to come starts before it."""

    def finish(self) -> tuple[Int64, Int64]:
        """(row, self time) of rows that were open when their segment ended. All flow records are reached."""

class LaneScan:
    """Puts events, in start order, on the lanes of a timeline (`profd/query/tiles`)."""

    def __init__(self, begin: int, end: int, *, lanes_max: int = 1048576) -> None:
        """`begin`: where the first pixel begins; events whose end was not seen last to `end`."""

    def run(self, key: Int64, until: Int64) -> None:
        """What runs on these lanes before the first event, and until when."""

    def add(
        self,
        start: Int64,
        end: Int64,
        thread: Int32,
        depth: Int32,
        kind: UInt8,
        device_type: UInt8,
        is_async: UInt8,
        level: int,
    ) -> tuple[Int32, Int32, Int64, Int64, Int64, Int32, Int64, Int64, Int32]:
        """The next events: (place, lane, duration, weight) of those that can be seen at pixels of 2^level ns, and
        (pixel, lane, events, their durations, a bit for each kind) of the others.

        An event's weight is its duration, or how long after the end of all before it on its lane it begins. Level -1:
        all can be seen. ValueError beyond `lanes_max`.
        """

    def lanes(self) -> tuple[Int64, Int64, Int64, Int64]:
        """(key, events, first start, last end) of each lane, by its number."""

def coarsest_levels(weight: Int64) -> Int32:
    """The largest n for which 2^n is at most each weight; -1 for what is not positive."""

def fold_cells(
    lane: Int32,
    bucket: Int64,
    count: Int64,
    busy: Int64,
    kinds: Int32,
    levels: int,
    box_lane: Int32,
    box_start: Int64,
    box_lasts: Int64,
    box_kind: UInt8,
    begin: int,
    level: int,
) -> tuple[Int32, Int64, Int64, Int64, Int32]:
    """Cells of a level: of cells that are finer by so many `levels`, and of boxes that are too short at `level`.

    One (lane, pixel, events, their durations, kinds) for each pixel and lane, in order of pixel and lane. ValueError
    where cells are not in order of their pixels, or boxes in order of their start.
    """

class LinkBuilder:
    """Device rows to the runtime or driver calls with their correlation id, in the same group (input).

    Of at most `launches_max` calls the latest are remembered; `forgotten` counts the others.
    """

    device_without_launch: int
    launch_without_device: int
    correlation_reused: int
    forgotten: int

    def __init__(self, *, launches_max: int = 1048576) -> None: ...
    def feed(self, correlation: Int64, group: Int32, role: UInt8, depth: Int32) -> tuple[Int64, Int32]:
        """(linked row or -1, depth) of the next rows; depth is the launch's plus one where there is one."""

    def skip(self, rows: int) -> None:
        """The next rows, of which none is a call or ran on a device."""

    def finish(self) -> tuple[Int64, Int64, Int32]:
        """(row, linked, depth) of device rows of earlier calls whose launch came later."""

def merge_spans(
    start: Int64,
    end: Int64,
    group: Int64,
    lines: list[tuple[Int32, Int32, Int64, Int32, Int64, Int64, int]],
    *,
    close_gaps: bool,
    close_last: bool,
) -> list[tuple[Int32, Int64, Int64, Int64, Int64]]:
    """Derived lines (docs/timeline.md) from rows in the order of time; see profd.derive.timeline.merge.

    For each line: which list of keys is put there for each row (-1: none), which list of scope ids, the lists of keys
    (offsets, values), those of scope ids, and the earlier line on whose outermost events it depends (-1: none).
    Returned for each line: key, start, end and group of its events as they began, and for each row the event that it
    began or went on with on the innermost level (-1: none).
    """

def enclosing(line: Int64, end: Int64) -> Int64:
    """The innermost earlier row that encloses each, -1 for none; rows by line and start, the longest first."""

class Family:
    """Parents and children of events, which may have several parents and form circles."""

    def __init__(self, above: Int64, below: Int64, size: int) -> None: ...
    def above(self, event: int) -> list[int]:
        """An event's parents."""
    def groups(self, roots: Int64, level: Int64, steps_max: int) -> tuple[Int64, Int64]:
        """(the group of each event or -1, the root each group began with); what has a group keeps it.

        A root below another of its `level` begins none; no levels: every root begins one. ValueError after looking at
        `steps_max` events above roots.
        """

class StoredView:
    """Torch's view of a whole trace, of which rows nest strictly, by the tree that it is stored with."""

    def __init__(
        self,
        *,
        role: UInt8,
        kind: UInt8,
        device_type: UInt8,
        name: Int32,
        names: int,
        parent: Int64,
        lasting: Int64,
        phase: UInt8 | None,
        thread: Int32 | None,
        of_kind: UInt8,
        overlaps: UInt8,
    ) -> None:
        """`role`: bits of `profd/query/roles.py`. `name`: below `names`, or -1. `lasting`: ns. `thread`: where parents
        may be on others.

        Table by kind: bits, 1 the stored tree nests it, 2 a function (none is a wrapper), 4 apart from ops of its name.
        By phase: `overlaps`, of rows that the stored tree does not nest. ValueError for a name out of range.
        """

    known: bool
    """Whether the stored tree tells the view's: no other method may be asked where it does not."""

    def work(self) -> Int64:
        """Rows that cost the op which launched them."""

    def above(self) -> Int64:
        """The row of the call around each row, or -1."""

    def ops_around(self, launch: Int64) -> Int64:
        """The innermost op around each launch, or -1."""

    def sums(
        self, op: Int64, outermost: UInt8 | None
    ) -> tuple[Int32, UInt8, Int64, Int64, Int64, Int64, Int64, Int64] | None:
        """(group of each row, which rows are calls; of each group its first row, how many calls, and their CPU, self
        CPU, device and self device time in ns); None where a sum is beyond 64 bits. Once.

        What is of one name, device type and apart may be several groups, in order of their first rows.
        `op`: that each row of `work` belongs to, or -1. `outermost`: rows whose times count in totals; None: all.
        """

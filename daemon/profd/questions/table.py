"""The questions: docs/adding-a-question.md says what else a new row needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from profd.errors import BadInput
from profd.limits import SQL_ROWS_MAX, SQL_TEXT_BYTES_MAX, TILE_ROWS_MAX, TILE_WIDTH_MAX
from profd.model.arguments import Flag, Integer, Text, Texts, Trace
from profd.model.formats import FORMATS
from profd.model.question import AnswerKind, Cost, Question

VALUE, ROWS, BYTES, LIVE = AnswerKind

_SORT_KEYS: Final = (
    *("self_cpu_time_total", "cpu_time_total", "self_device_time_total", "device_time_total", "backward_time_total"),
    *("cpu_memory_usage", "self_cpu_memory_usage", "device_memory_usage", "self_device_memory_usage"),
    *("count", "flops", "name"),
)
_LINES: Final = ("steps", "launches", "scopes", "ops", "modules", "xla-ops", "graphs", "sources")

_MERGED_DIFF: Final = "profd.query.merged_diff:merged_diff"

_TILES: Final = ("tiles-lanes", "tiles-boxes", "tiles-cells", "tiles-names")
_TILES_VERSION: Final = 3  # with names
_TILES_INDEX: Final = "profd.query.tiles.timeline:index_lines"

_PART: Final = (
    Integer("from_ns", "Only from here on, counted from the trace's first event."),
    Integer("to_ns", "Only up to here, counted from the trace's first event."),
    Integer("first_step", "Instead: only from the start of this training step on."),
    Integer("last_step", "Up to the end of this one; absent: of the first."),
)
_PART_OF_THREADS: Final = (
    *_PART,
    Text("thread", "Only this thread, by name or id, and what it launched; empty: all."),
)

_TABLE: Final = (
    Question(
        *("summary", "What a trace amounts to.", "profd.query.summary:summarise", VALUE),
        cost=Cost.SHORT,
        rollups=("summary",),
        version=3,  # as `top`
        audited="show",
        with_record=True,
    ),
    Question(
        *("top", "Where the time went, by name.", "profd.query.top:top", VALUE),
        cost=Cost.SHORT,
        rollups=("top", "top-raw", "top-module", "top-module-raw"),
        version=4,  # without threads of profd
        arguments=(
            Text(
                *("group_by", "A row for each of these, too."),
                choices=("module",),
                refusal="cannot group by {value!r}; group by one of: {known}",
            ),
            Flag("group_by_input_shape", "A row for each combination of input shapes."),
            Integer("group_by_stack_n", "A row for each so many innermost frames.", default=0, least=0),
            Integer("limit", "So many rows; 0: all.", default=0, least=0),
            Text(
                *("sort_by", "Numbers fall, names rise.", _SORT_KEYS[0]),
                choices=_SORT_KEYS,
                refusal="cannot sort by {value!r}; sort by one of: {known}",
            ),
            Flag("with_backward", "How long the backward ops of each op took."),
            Flag("raw", "Every event as it was recorded, instead of torch.profiler's view."),
            *_PART_OF_THREADS,
        ),
        of_capture="profd.query.top:top_of_capture",
        capture_arguments=(
            Text(
                *("by", "A row for each of these; empty: the traces are added up."),
                choices=("rank", "host", "trace"),
                refusal="cannot tell rows apart by {value!r}, but by one of: {known}",
            ),
        ),
    ),
    Question(
        *("tree", "The call tree of a trace.", "profd.query.tree:tree_lines", ROWS),
        version=2,  # without threads of profd
        arguments=(
            Integer("max_depth", "Only so many levels; 0: all.", default=0, least=0),
            Integer("from_row", "Only the subtree of this row."),
            *_PART_OF_THREADS,
        ),
    ),
    Question(
        *("merged_tree", "All calls of one path together, the hottest first.", "profd.query.merged:merged_tree", VALUE),
        rollups=("merged-calls", "merged-modules", "merged-operators", "merged-samples"),
        version=2,  # without threads of profd
        arguments=(
            Integer("limit", "So many paths, those with most time; 0: as many as are allowed.", 0, 0),
            Text(
                *("of", "Which calls: all, or only calls of nn.Module, operators, or samples.", "calls"),
                choices=("calls", "modules", "operators", "samples"),
                refusal="there is no tree of {value!r}; there are those of: {known}",
            ),
            *_PART_OF_THREADS,
        ),
    ),
    Question(
        *("steps", "The training steps of a trace, one by one.", "profd.query.steps:steps_of_trace", VALUE),
        rollups=("steps",),
        of_capture="profd.query.steps_of_capture:steps_of_capture",
    ),
    Question(
        *("memory", "What was allocated, freed, and is alive, by stack.", "profd.query.memory:memory_of_trace", VALUE),
        arguments=(
            Integer("limit", "So many stacks, those with most bytes; 0: as many as are allowed.", 0, 0),
            *_PART,
        ),
    ),
    Question(
        *("memory_peak", "What was alive when most was, by stack.", "profd.query.memory_peak:memory_peak", VALUE),
        arguments=(
            Integer("limit", "So many paths, those with most bytes; 0: as many as are allowed.", 0, 0),
            Text("device", "Memory of this device, as CPU or CUDA 0; empty: of an accelerator before the host."),
            *_PART_OF_THREADS,
        ),
    ),
    Question(
        "gpu",
        "What the GPUs of a trace did: streams, idle time, launches, copies.",
        "profd.query.gpu:gpu_of_trace",
        VALUE,
        rollups=("gpu",),
        of_capture="profd.query.gpu_of_capture:gpu_of_capture",
    ),
    Question(
        "timeline",
        "Steps, modules, name scopes and operators on the devices of a trace.",
        "profd.query.timeline:timeline_lines",
        ROWS,
        arguments=(
            Text(
                *("rules", "Which rule set of docs/timeline.md derives them.", "current"),
                choices=("current", "classic"),
                refusal="there is no rule set {value!r}; there are: {known}",
            ),
            Texts(
                *("lines", "Only lines of these kinds; none: all."),
                choices=_LINES,
                refusal="there are no lines {values!r}; there are: {known}",
            ),
        ),
    ),
    Question(
        "diff",
        "What became slower, faster, new and gone from one trace to another.",
        "profd.query.diff:diff",
        VALUE,
        arguments=(
            Trace("other", "The trace to compare with: what became of the first in it."),
            Text(
                *("by", "What is compared.", "name"),
                choices=("name", "path", "module"),
                refusal="cannot compare by {value!r}; compare by one of: {known}",
            ),
        ),
        rollups=("diff-name", "diff-module"),
        of_capture="profd.query.diff:diff_of_captures",
    ),
    Question(
        *("merged_diff", "The call trees of two traces as one, each path with its time in both.", _MERGED_DIFF, VALUE),
        version=2,  # without threads of profd
        arguments=(
            Trace("other", "The trace to compare with: what became of the first in it."),
            Integer("limit", "So many paths, those with most time in either; 0: as many as are allowed.", 0, 0),
        ),
        of_capture="profd.query.merged_diff:merged_diff_of_captures",
    ),
    Question(
        *("sql", "Ask a trace in SQL (DuckDB's), read-only.", "profd.query.sql:sql", VALUE),
        arguments=(
            Text(
                *("sql", "A single SELECT, FROM, WITH, DESCRIBE, SUMMARIZE or EXPLAIN."),
                most=SQL_TEXT_BYTES_MAX,
                refusal="the question is longer than {most} bytes, the limit",
            ),
            Integer(
                *("limit", "So many rows; 0: as many as are allowed.", 0, 0, SQL_ROWS_MAX),
                refusal="limit must be a number from 0 (meaning {most}) to {most}, not {value!r}",
            ),
            *_PART,
        ),
        of_capture="profd.query.sql_of_capture:sql_of_capture",
    ),
    Question(
        *("export", "The trace as a file for another tool.", "profd.export.jobs:export", BYTES),
        arguments=(
            Text(
                *("format", "For which tool.", "chrome"),
                choices=tuple(FORMATS),
                refusal="there is no export format {value!r}; known are {known}",
            ),
            Integer(
                *("min_duration_ns", "Only events at least this long.", 0, 0),
                refusal="--min-duration cannot be {value} ns; leave it out",
            ),
            Flag("gzip", "Compress it."),
            Flag("derived_flows", "Add links from forward to backward ops where none were recorded; for chrome."),
            *_PART,
            Texts(
                *("redact", "What is left out or hashed; for chrome, perfetto, perfetto-archive and bundle."),
                choices=("paths", "values", "names"),
                refusal="there is no redaction {value!r}; known are {known}",
            ),
        ),
        of_capture="profd.export.jobs:export_of_capture",
    ),
    Question(
        *("traces", "Which traces a capture has, and of which ranks.", "profd.query.captured:traces_of_trace", VALUE),
        of_capture="profd.query.captured:traces_of_capture",
    ),
    Question(
        *("explain", "What costs time: causes, evidence, upper bounds.", "profd.answers.explain:explain", VALUE),
        version=2,  # without threads of profd
        cost=Cost.SHORT,
        rollups=("explain", "explain-steps"),
        kept_of_capture=False,  # which ranks are late is in no trace
        arguments=_PART,
        of_capture="profd.answers.ranks.explain:explain_of_capture",
    ),
    Question(
        *("ranks", "Of each rank where its steps went, and which ranks the others wait for."),
        *("profd.answers.ranks.ranks:ranks_of_trace", VALUE),
        of_capture="profd.answers.ranks.ranks:ranks_of_capture",
    ),
    Question(
        *("comm", "What collectives carry and wait for, and which rank comes last to them."),
        *("profd.answers.ranks.comm:comm_of_trace", VALUE),
        of_capture="profd.answers.ranks.comm:comm_of_capture",
    ),
    Question(
        *("critical", "What the end of the steps waited for.", "profd.answers.critical.answer:critical", VALUE),
        cost=Cost.SHORT,
        arguments=(Integer("limit", "So many names, those with most time on the path; 0: all.", default=10, least=0),),
        of_capture="profd.answers.ranks.critical:critical_of_capture",
    ),
    Question(
        *(
            "tiles",
            "What can be seen of a window of the timeline, as boxes and as counts.",
            "profd.query.tiles.answer:tiles",
        ),
        VALUE,
        arguments=(
            Integer("from_ns", "The begin of the window, counted from the trace's first event."),
            Integer("to_ns", "Its end; absent: that of the trace."),
            Integer("width", "So many pixels.", default=1024, least=1, most=TILE_WIDTH_MAX),
            Integer("first_track", "Only from this track on, as the answer numbers them.", default=0, least=0),
            Integer("last_track", "Only up to this one.", least=0),
            Integer("limit", "So many boxes and counts; pixels grow until so few are left.", 50_000, 1, TILE_ROWS_MAX),
            Flag("with_tracks", "Which tracks there are, too."),
            Flag("sketch", "Of a sample, where nothing is kept of the trace and to read it all would take long."),
        ),
        cost=Cost.GLANCE,
        rollups=_TILES,
        version=_TILES_VERSION,
    ),
    Question(
        *("tiles_index", "Keeps what the timeline is drawn from, and says how far it is.", _TILES_INDEX, ROWS),
        cost=Cost.GLANCE,  # what somebody who moves about waits for
        rollups=_TILES,
        rollups_of="tiles",
        version=_TILES_VERSION,
    ),
    Question(
        *("event", "One event: its times, arguments, stack, and what it is within.", "profd.query.event:event", VALUE),
        cost=Cost.GLANCE,
        arguments=(Integer("row", "Its row, as in `tree`.", default=0, least=0),),
    ),
    Question(
        *("search", "Which events have a text in their name, and where.", "profd.query.search:search", VALUE),
        cost=Cost.SHORT,
        arguments=(
            Text("text", "The text, in any case."),
            Integer("parts", "The first event in each of so many parts of the trace.", 1000, 1, TILE_WIDTH_MAX),
        ),
        rollups=("tiles-names",),
        rollups_of="tiles",
        version=_TILES_VERSION,
    ),
    Question(
        *("window", "Where the window of a trace went.", "profd.query.accounting:window_of_trace", VALUE),
        version=2,  # without threads of profd
    ),
    Question("watch_host", "Processes and captures that you may see, as they change.", "", LIVE, offline=False),
)

QUESTIONS: Final = {question.name: question for question in _TABLE}


def find(name: str) -> Question:
    """The question of this name. BadInput lists those that there are."""
    if name not in QUESTIONS:
        raise BadInput(f"there is no question {name[:100]!r}; there are: {', '.join(QUESTIONS)}")
    return QUESTIONS[name]


def of_whole(question: Question, arguments: Mapping[str, Any]) -> bool:
    """Whether checked arguments ask about all of a trace, and not about a window, steps or a thread of it."""
    parts = (one for one in question.arguments if one in _PART_OF_THREADS)
    return all(arguments.get(one.name) in (None, one.default) for one in parts)


def directory(argument: str) -> str:
    """What a job calls the directory of the trace that an argument names."""
    return f"{argument}_dir"


def absent(argument: str) -> str:
    """What a job calls what the capture lacks that an argument names."""
    return f"{argument}_absent"


def index(argument: str) -> str:
    """What a job calls the directory of its rollups, which need not be there."""
    return f"{argument}_index"

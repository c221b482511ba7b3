"""A source's word about itself, once: its rank, an answer for every option, and the traits of its traces.

The daemon decides by it: which source is taken (`capture/choice.py`), what of a request is refused or not honoured, and
what a stored trace can be asked (`model/traits.py`). A source has no list of its own of what it cannot do: an option
without an answer is an error of mypy, and of `tests/unit/profd/sources/test_declarations.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from profd.model.capture import CommonOptions, SamplingOptions, ServerOptions, TorchOptions
from profd.model.traits import Traits


class OptionAnswer:
    """The answer to an option that is asked for: one of the four below."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Served(OptionAnswer):
    """It is done, in every process and whatever else is asked."""


@dataclass(frozen=True, slots=True)
class Unserved(OptionAnswer):
    """It is left out and told: `why` follows the option's word (`memory: pyspy records no allocations`)."""

    why: str


@dataclass(frozen=True, slots=True)
class ByProcess(OptionAnswer):
    """The process, or the rest of the request, decides: `Plan.unserved` says why not, and is silent where it is served.

    `by_default`: the option's default asks for something, too, so that what is missing of it is told to everybody.
    """

    by_default: bool = False


@dataclass(frozen=True, slots=True)
class Refuses(OptionAnswer):
    """A request without it would be another one: all of it is refused, with `why` as the whole sentence."""

    why: str


NUMBERS_NO_STEPS: Final = Refuses(
    "only attached processes (source sdk) begin at a step: --at-step needs the program's own profclient.step()"
)
SERVED: Final = Served()
BY_PROCESS: Final = ByProcess()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonAnswers:
    """One for each of `CommonOptions`."""

    duration_ns: OptionAnswer
    iterations: OptionAnswer
    start_at_ns: OptionAnswer
    begin_step: OptionAnswer
    at_least_ns: OptionAnswer
    stacks: OptionAnswer
    c_calls: OptionAnswer
    max_overhead: OptionAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchAnswers:
    """One for each of `TorchOptions`."""

    torch: OptionAnswer
    shapes: OptionAnswer
    memory: OptionAnswer
    modules: OptionAnswer
    flops: OptionAnswer
    gpu_fallback: OptionAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingAnswers:
    """One for each of `SamplingOptions`."""

    sample_hz: OptionAnswer
    native: OptionAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAnswers:
    """One for each of `ServerOptions`."""

    port: OptionAnswer
    collect_timeout_ns: OptionAnswer
    last_ns: OptionAnswer


_GROUPS: Final = {
    group: tuple(option.name for option in fields(options))
    for group, options in (
        ("common", CommonOptions),
        ("torch", TorchOptions),
        ("sampling", SamplingOptions),
        ("server", ServerOptions),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One source. An answer in the place of a group's answers is that of every option in the group."""

    name: str
    rank: int  # the lowest is the best: traced events before samples
    common: CommonAnswers
    torch: TorchAnswers | OptionAnswer
    sampling: SamplingAnswers | OptionAnswer
    server: ServerAnswers | OptionAnswer
    traits: Traits
    can_stop: bool = True  # False: a window runs to its end once accepted
    self_disarming: bool = False
    """A target ends recording by itself soon after the daemon has died: recording may begin before anything of the
    capture is on the disk (`Session.made`)."""
    attached: bool = False
    """It records attached processes, from the inside: that other sources cannot have one of these needs no remark."""
    danger: str = ""
    """How recording with it can kill the process, a sentence: it is taken only where `--source` names it and `--force`
    insists."""

    answers: Mapping[str, OptionAnswer] = field(init=False, repr=False, compare=False)
    """All of them, by the option's name in `Options`."""

    def __post_init__(self) -> None:
        found: dict[str, OptionAnswer] = {}
        for group, names in _GROUPS.items():
            given = getattr(self, group)
            found |= {name: given if isinstance(given, OptionAnswer) else getattr(given, name) for name in names}
        object.__setattr__(self, "answers", found)


def cannot_guard(source: str) -> Refuses:
    """The answer to `max_overhead` of a source that does not measure what it costs."""
    return Refuses(
        f"{source} cannot bound what it costs the process, so it does not serve --max-overhead; "
        "sources sdk (processes that call profclient.attach()) and pyspy do"
    )


def without_server(source: str) -> ServerAnswers:
    """The answers of a source that asks no profiler server."""
    no_server = Unserved(f"{source} asks no profiler server; source jax does")
    return ServerAnswers(
        port=no_server,
        collect_timeout_ns=no_server,
        last_ns=Refuses(f"{source} keeps all of a recording and does not serve --last; source jax does"),
    )

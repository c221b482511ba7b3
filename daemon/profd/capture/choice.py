"""Which source records a process, and why; or why none does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from profd.capture.estimate import Headroom, over_limit
from profd.model.capture import Options, Reason, State, option_word
from profd.sources.base import Offer, Plan, Source
from profd.sources.declaration import ByProcess, Declaration, Refuses, Unserved
from profd.targets.process import Process

_LAUNCH_WORDS: Final = frozenset(
    ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed", "horovodrun")
)
_LAUNCH_EXECUTABLES: Final = frozenset(
    (
        "sh",
        "bash",
        "dash",
        "zsh",
        "fish",
        "srun",
        "mpirun",
        "mpiexec",
        "sudo",
        "env",
        "timeout",
        "nohup",
        "make",
        "uv",
    )
)

_PYTHON: Final = re.compile(r"(python|pypy)[\d.]*t?")


@dataclass(frozen=True, slots=True)
class Choice:
    """The source that will record and what it will mean; or, without one, the state to end in."""

    source: Source | None
    plan: Plan | None = None
    why: str = ""  # a sentence for the estimate and the trace
    state: State = State.REFUSED
    reason: Reason = Reason.NONE
    message: str = ""
    not_honoured: tuple[str, ...] = ()  # "memory: kineto records no memory events on demand"


def in_order(sources: Sequence[Source]) -> list[Source]:
    """Best first, as they declare. Offers may put better ones first (`Offer.after`)."""
    return sorted(sources, key=lambda source: (source.declaration.rank, source.name))


def not_honoured(declaration: Declaration, options: Options, plan: Plan) -> tuple[str, ...]:
    """Options asked less options served: a sentence for each, which begins with its word.

    Options that nobody asked for, and that are missing from the default recording, come first.
    """
    asked = options.asked
    by_default, others = [], []
    for name, answer in declaration.answers.items():
        why = answer.why if isinstance(answer, Unserved) else plan.unserved.get(name, "")
        if not why:
            continue
        if name in asked:
            others.append(f"{option_word(name)}: {why}")
        elif isinstance(answer, ByProcess) and answer.by_default:
            by_default.append(f"{option_word(name)}: {why}")
    return (*by_default, *others)


def _refused_option(declaration: Declaration, options: Options) -> str:
    """Why all of the request is refused for one of its options; empty if it is not."""
    answers, asked = declaration.answers.items(), options.asked
    return next((answer.why for name, answer in answers if isinstance(answer, Refuses) and name in asked), "")


def in_turn(process: Process, ranked: Sequence[Source]) -> Iterator[tuple[Source, Offer]]:
    """The sources with what they say of this process, best for it first. None is asked before its turn comes, but
    where one has named better ones: some look at files.
    """
    for index, source in enumerate(ranked):
        offer = source.offer(process)
        if offer.after:
            yield from _after_better([(source, offer), *((each, each.offer(process)) for each in ranked[index + 1 :])])
            return
        yield source, offer


def _after_better(offers: Sequence[tuple[Source, Offer]]) -> list[tuple[Source, Offer]]:
    """These, each behind those that it has named and that are able."""
    able = {source.name: index for index, (source, offer) in enumerate(offers) if offer.can or offer.busy}

    def turn(numbered: tuple[int, tuple[Source, Offer]]) -> tuple[int, int]:
        index, (_, offer) = numbered
        better = [able[name] for name in offer.after if name in able]
        return max([index, *better]), int(bool(better))

    return [pair for _, pair in sorted(enumerate(offers), key=turn)]


def choose(
    process: Process,
    options: Options,
    sources: Sequence[Source],
    children: Sequence[Process],
    headroom: Callable[[], Headroom],
    *,
    open_ended: bool = False,
) -> Choice:
    """The source for one process.

    `children` are its living descendants that somebody could trace (only their
    pids are used, in messages). A busy better source is an answer, not a reason
    to take a lesser one: who asks for a trace must not get samples by accident.
    A source that can kill the process (`Declaration.danger`) is nobody's better one: it
    is taken where it is named, with `force`.
    """
    ranked = _eligible(options, sources)
    if isinstance(ranked, Choice):
        return ranked
    launcher = _launcher(process, options, children)
    if launcher is not None:
        return launcher
    passed: list[str] = []
    declined: list[tuple[str, Offer]] = []
    refusal: Choice | None = None
    for source, offer in in_turn(process, ranked):
        if offer.busy:
            return Choice(
                None, state=State.BUSY, reason=_busy_code(offer), message=_busy_message(source, offer, ranked)
            )
        if not offer.can:
            declined.append((source.name, offer))
            passed.append(f"{source.name}: {_clause(offer.reason)}")
            continue
        plan = source.plan(process, options)
        missing = not_honoured(source.declaration, options, plan)
        why_not = _refusal(source, plan, options, missing, headroom, open_ended=open_ended)
        if why_not is None:
            return Choice(source, plan, _why(options, passed), not_honoured=missing)
        refusal_here = Choice(None, plan, reason=why_not[0], message=why_not[1], not_honoured=missing)
        refusal = refusal or refusal_here
        passed.append(f"{source.name}: {_clause(refusal_here.message)}")
        # These are about the process or the host, not about this source.
        if refusal_here.reason in (Reason.OVER_LIMIT, Reason.TARGET_ENDING) or _meant_operators(options, plan, missing):
            break
    return refusal or _no_source(process, options, declined, children)


def _eligible(options: Options, sources: Sequence[Source]) -> list[Source] | Choice:
    """The sources that may be chosen, best first, or why none may."""
    ranked = in_order(sources)
    if not options.source:
        return [source for source in ranked if not source.declaration.danger]
    named = [source for source in ranked if source.name == options.source]
    if not named:
        known = ", ".join(source.name for source in ranked) or "none"
        message = f"there is no source {options.source!r}; there are: {known}"
        return Choice(None, reason=Reason.NO_SOURCE, message=message)
    if named[0].declaration.danger and not options.force:
        return Choice(None, reason=Reason.NOT_HONOURED, message=_dangerous(named[0]))
    return named


def _refusal(
    source: Source,
    plan: Plan,
    options: Options,
    missing: Sequence[str],
    headroom: Callable[[], Headroom],
    *,
    open_ended: bool,
) -> tuple[Reason, str] | None:
    """Why this source, which could, does not record what is asked; None: it does."""
    if open_ended and not source.declaration.can_stop:
        return Reason.NOT_HONOURED, f"{source.name} cannot be stopped, so it needs --duration or --iterations"
    if refused := _refused_option(source.declaration, options):
        return Reason.NOT_HONOURED, refused
    if not plan.serves:
        return plan.refusal_code, plan.refusal
    if options.strict and missing:
        return Reason.NOT_HONOURED, f"--strict, and {source.name} would not honour: {'; '.join(missing)}"
    too_much = over_limit(plan, options, headroom)
    return (Reason.OVER_LIMIT, f"refused: {too_much}") if too_much else None


def _dangerous(source: Source) -> str:
    return f"{source.declaration.danger}; --source {source.name} --force records with it all the same"


def _meant_operators(options: Options, plan: Plan, missing: Sequence[str]) -> bool:
    """A source that would have recorded operators and cannot is not replaced by one that has none.

    Where they are asked for by `--torch`, or strictly and are missing.
    """
    named = not plan.serves and options.torch in ("observer", "profiler")
    return named or any(sentence.startswith("torch:") for sentence in missing)


def _why(options: Options, passed: list[str]) -> str:
    if options.source:
        return "asked for by name"
    if not passed:
        return "the best source there is, and it serves the request"
    return f"the first that serves the request ({'; '.join(passed)})"


def _busy_code(offer: Offer) -> Reason:
    return Reason.OTHER_PROFILER if offer.why_code is Reason.NO_SOURCE else offer.why_code


def _busy_message(source: Source, offer: Offer, ranked: Sequence[Source]) -> str:
    others = [each.name for each in ranked if each is not source and each.declaration.traits.samples]
    hint = f"; for samples instead: --source {others[0]}" if others else ""
    how = "has to wait" if offer.why_code is Reason.TARGET_SILENT else "is held"
    return f"{source.name} {how}: {_clause(offer.reason)}{hint}"


def _clause(sentence: str) -> str:
    """A sentence as a part of another."""
    return sentence.removesuffix(".")


def _launcher(process: Process, options: Options, children: Sequence[Process]) -> Choice | None:
    """A launcher imports torch and registers like a worker; its trace would be empty."""
    if options.source or not children or not is_launcher(process):
        return None
    return Choice(None, reason=Reason.LAUNCHER, message=_launcher_message(process, children))


def _launcher_message(process: Process, children: Sequence[Process]) -> str:
    return f"pid {process.id.pid} is a launcher; {_children_instead(children)}"


def _children_instead(children: Sequence[Process]) -> str:
    pids = sorted(child.id.pid for child in children)
    listed = ", ".join(map(str, pids[:16])) + (", ..." if len(pids) > 16 else "")
    return f"its traceable children are {listed}: name them with --pid, or add --children"


def _no_source(
    process: Process, options: Options, declined: list[tuple[str, Offer]], children: Sequence[Process]
) -> Choice:
    if children and is_launcher(process):
        return Choice(None, reason=Reason.LAUNCHER, message=_launcher_message(process, children))
    codes = [offer.why_code for _, offer in declined]
    sentences = [
        f"{name}: {_clause(offer.reason)}" + (f" ({_clause(offer.fix)})" if offer.fix else "")
        for name, offer in declined
        if offer.reason
    ]
    what = "; ".join(sentences)
    if options.source:  # children are no answer to why this one cannot
        message = f"pid {process.id.pid} cannot be traced by {what or options.source}"
    else:
        message = f"no source can trace pid {process.id.pid}: {what or 'it is neither a Python nor a GPU process'}"
        if children:
            return Choice(None, reason=Reason.LAUNCHER, message=f"{message}; {_children_instead(children)}")
    # A right that is missing is the more useful answer than a framework that is.
    code = next((code for code in codes if code is not Reason.NO_SOURCE), Reason.NO_SOURCE)
    return Choice(None, reason=code, message=message)


def is_launcher(process: Process) -> bool:
    """Whether a command line only starts others: torchrun, `python -m torch.distributed.run`, a shell."""
    words = process.command.split()
    if not words:
        return False
    program = _name(words[0]).lstrip("-")
    if program in _LAUNCH_EXECUTABLES or program in _LAUNCH_WORDS:
        return True
    if not _PYTHON.fullmatch(program):
        return False
    return _python_runs(words[1:]) in _LAUNCH_WORDS


def _python_runs(words: Sequence[str]) -> str:
    """The module or the script's name of a Python command line; empty if there is none."""
    rest = iter(words)
    for word in rest:
        if word == "-m":
            return next(rest, "").split(":")[0]
        if word in ("-c", "-"):
            return ""
        if word in ("-X", "-W"):
            next(rest, "")
        elif not word.startswith("-"):
            return _name(word)
    return ""


def _name(path: str) -> str:
    """Its last part."""
    return path.rstrip("/").rpartition("/")[2]

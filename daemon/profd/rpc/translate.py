"""Capture values <-> protobuf messages. Numbers of states and reasons are the same on both sides."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import asdict
from typing import Final

from profproto.v1 import capture_pb2 as pb

from profd.attached.collectives import JobVerdict
from profd.capture.planner import Sighting, TargetPlan
from profd.capture.records import CaptureRecord, TargetRecord
from profd.errors import BadInput
from profd.limits import SELECTOR_WORDS_MAX, STRING_BYTES_MAX
from profd.model.capture import Fleet, HostClock, Options, ProgramSteps
from profd.model.frame import Frame
from profd.model.load import Load
from profd.model.text import encodable
from profd.sources.pyspy.stack import ThreadStack
from profd.targets.selector import Selector

WORD_CHARACTERS_MAX: Final = 256  # a user, a job id, a source's name
_INT32_MAX: Final = (1 << 31) - 1


def options_from_untrusted(message: pb.Options) -> Options:
    """Options of a request; their users check ranges. BadInput for an oversized name."""
    return Options(
        duration_ns=message.duration_ns,
        iterations=message.iterations,
        shapes=message.shapes,
        stacks=message.stacks,
        memory=message.memory,
        modules=message.modules,
        flops=message.flops,
        source=_word(message.source, "source"),
        strict=message.strict,
        force=message.force,
        start_at_ns=message.start_at_ns if message.HasField("start_at_ns") else None,
        sample_hz=message.sample_hz if message.HasField("sample_hz") else None,
        native=message.native,
        c_calls=message.c_calls,
        torch=_word(message.torch, "torch recorder"),
        max_overhead=message.max_overhead if message.HasField("max_overhead") else None,
        port=message.port,
        collect_timeout_ns=message.collect_timeout_ns,
        no_gpu_metrics=message.no_gpu_metrics,
        last_ns=message.last_ns,
        gpu_fallback=message.gpu_fallback,
        begin_step=message.begin_step if message.HasField("begin_step") else None,
        at_least_ns=message.at_least_ns,
    )


def fleet_from_untrusted(message: pb.StartCaptureRequest) -> Fleet | None:
    """The fleet of a request, if any; admission checks its numbers. BadInput for an oversized name."""
    if not message.HasField("fleet"):
        return None
    fleet = message.fleet
    name, host, found = (_word(word, "name of a fleet") for word in (fleet.id, fleet.host, fleet.found))
    return Fleet(name, host, fleet.hosts, found, _clock(fleet.clock) if fleet.HasField("clock") else None)


def _clock(clock: pb.HostClock) -> HostClock:
    return HostClock(
        clock.ahead_ns,
        clock.within_ns,
        clock.error_ns if clock.HasField("error_ns") else None,
        clock.synchronised if clock.HasField("synchronised") else None,
    )


def selector_from_untrusted(message: pb.Selector, host_pids: Sequence[int]) -> Selector:
    """A selector whose pids have been translated to the host's. BadInput for impossible values."""
    kinds: dict[str, Sized] = {
        "users": message.users,
        "jobs": message.jobs,
        "GPUs": message.gpus,
        "ranks": message.ranks,
    }
    for kind, named in kinds.items():
        if len(named) > SELECTOR_WORDS_MAX:
            raise BadInput(f"{len(named)} {kind} were named; at most {SELECTOR_WORDS_MAX} are taken")
    for pid in host_pids:
        if not 0 < pid <= _INT32_MAX:
            raise BadInput(f"{pid} is not a pid")
    return Selector(
        pids=tuple(host_pids),
        users=tuple(_word(user, "user") for user in message.users),
        jobs=tuple(_word(job, "job") for job in message.jobs),
        gpus=tuple(message.gpus),
        ranks=tuple(message.ranks),
        children=message.children,
    )


def _word(word: str, what: str) -> str:
    if len(word) > WORD_CHARACTERS_MAX or not word.isprintable():
        raise BadInput(f"a {what} is a printable word of at most {WORD_CHARACTERS_MAX} characters")
    return word


def options_message(options: Options) -> pb.Options:
    """Options for a caller."""
    message = pb.Options(
        duration_ns=options.duration_ns,
        iterations=options.iterations,
        shapes=options.shapes,
        stacks=options.stacks,
        memory=options.memory,
        modules=options.modules,
        flops=options.flops,
        source=options.source,
        strict=options.strict,
        force=options.force,
        native=options.native,
        c_calls=options.c_calls,
        torch=options.torch,
        port=options.port,
        collect_timeout_ns=options.collect_timeout_ns,
        no_gpu_metrics=options.no_gpu_metrics,
        last_ns=options.last_ns,
        gpu_fallback=options.gpu_fallback,
        at_least_ns=options.at_least_ns,
    )
    if options.start_at_ns is not None:
        message.start_at_ns = options.start_at_ns
    if options.begin_step is not None:
        message.begin_step = options.begin_step
    if options.sample_hz is not None:
        message.sample_hz = options.sample_hz
    if options.max_overhead is not None:
        message.max_overhead = options.max_overhead
    return message


def capture_message(record: CaptureRecord) -> pb.Capture:
    """A capture with all its targets as they are now."""
    message = pb.Capture(
        id=record.id,
        request_id=record.request_id,
        owner=record.owner,
        owner_uid=record.owner_uid,
        options=options_message(record.options),
        state=int(record.state),  # type: ignore[arg-type]  # the numbers are equal, by test
        targets=[target_message(target) for target in record.targets],
        created_ns=record.created_ns,
        open_ended=record.open_ended,
        reason=text(record.reason),
    )
    if record.finished_ns is not None:
        message.finished_ns = record.finished_ns
    if (fleet := record.fleet) is not None:
        message.fleet.CopyFrom(pb.Fleet(id=fleet.id, host=fleet.host, hosts=fleet.hosts, found=fleet.found))
    return message


def target_message(target: TargetRecord) -> pb.TargetStatus:
    """One target of a capture."""
    message = pb.TargetStatus(
        host=target.host,
        pid=target.pid,
        start_time_ticks=target.start_ticks,
        user=target.user,
        command=text(target.command),
        gpus=target.gpus,
        job=text(target.job),
        sources=[target.source] if target.source else [],
        state=int(target.state),  # type: ignore[arg-type]  # as above
        reason=int(target.reason),  # type: ignore[arg-type]  # as above
        message=text(target.message),
        trace=target.trace,
        lost=[pb.Loss(stage=loss.stage, reason=loss.reason, count=loss.count) for loss in target.lost],
        not_honoured=[text(line) for line in target.not_honoured],
        warnings=[text(line) for line in target.told],
        waterfall=[pb.Phase(name=p.name, duration_ns=p.duration_ns) for p in target.waterfall],
        doing=text(target.doing),
        uid=target.uid,
        cost=_cost(target),
        load=_load(target.load),
    )
    for name in ("rank", "start_ns", "end_ns", "events", "gpu_events"):
        value = getattr(target, name)
        if value is not None:
            setattr(message, name, value)
    if (steps := target.steps) is not None:
        message.steps.CopyFrom(pb.RecordedSteps(count=steps.count, step_ns=steps.step_ns, first=steps.first))
    return message


def _cost(target: TargetRecord) -> pb.Cost:
    cost = pb.Cost(how=target.cost.how, detail=text(target.cost.detail))
    if target.cost.step_ratio is not None:
        cost.step_ratio = target.cost.step_ratio
    if target.cost.seconds is not None:
        cost.seconds = target.cost.seconds
    return cost


def _load(load: Load) -> pb.Load:
    """Stretches that are not known are left out."""
    known = ((when, getattr(load, when)) for when in ("before", "during", "after"))
    return pb.Load(**{when: pb.Stretch(**asdict(stretch)) for when, stretch in known if stretch is not None})


def estimate_message(plan: TargetPlan, steps: ProgramSteps | None = None) -> pb.TargetEstimate:
    """The estimate of a capture for one target."""
    target = target_message(plan.target)
    choice = plan.choice
    message = pb.TargetEstimate(choice=text(choice.why), permission=plan.permission)
    if choice.source is None:
        target.state = int(choice.state)  # type: ignore[assignment]  # as above
        target.reason = int(choice.reason)  # type: ignore[assignment]  # as above
        target.message = text(choice.message)
    else:
        target.sources.append(choice.source.name)
        message.source = choice.source.name
    message.target.CopyFrom(target)
    if choice.plan is not None:
        for name in ("latency_ns", "events", "memory_bytes", "trace_bytes", "cost_ns"):
            value = getattr(choice.plan, name)
            if value is not None:
                setattr(message, name, value)
        message.risks.extend(map(text, choice.plan.risks))
        message.not_honoured.extend(map(text, choice.not_honoured))
    if steps is not None:
        message.steps.CopyFrom(
            pb.ProgramSteps(begun=steps.begun, running_ns=steps.running_ns, step_ns=steps.step_ns or 0)
        )
    return message


def sighting_message(sighting: Sighting) -> pb.Target:
    """A process for `profctl ps`: ready, recording, busy or untraceable, and what would change that."""
    process = sighting.process
    message = pb.Target(
        pid=process.id.pid,
        user=process.user,
        command=text(process.command),
        job=text(process.job),
        gpus=process.gpus,
        framework=process.framework + (" (importing)" if process.importing else ""),
        # What a launcher offers is of no use: it is answered by its children.
        sources=[] if sighting.launcher else [name for name, offer in sighting.offers if offer.can],
        ppid=process.ppid,
        uid=process.uid,
        attached=sighting.attached,
    )
    if process.rank is not None:
        message.rank = process.rank
    message.state, message.reason, message.fix = _readiness(sighting)
    return message


def _readiness(sighting: Sighting) -> tuple[str, str, str]:
    """State, reason and fix. The reason of a better source stands even when a lesser one can."""
    if sighting.held:
        return "recording", f"held by capture {sighting.held}", ""
    declined = [(name, offer) for name, offer in sighting.offers if not offer.can and offer.reason]
    told = [(name, offer) for name, offer in declined if offer.concerns]
    reason = "; ".join(text(f"{name}: {offer.reason}") for name, offer in told)
    if declined and not told:
        reason = "it is neither a Python nor a GPU process"
    fix = "; ".join(text(offer.fix) for _, offer in told if offer.fix)
    if sighting.launcher:
        return "untraceable", "a launcher: its children do the work", "name its children, or add --children"
    if unread := sighting.process.unread:  # no word of what cannot be: that may be of what it was
        able = any(offer.can for _, offer in sighting.offers)
        return ("ready" if able else "busy"), f"it was {unread}", "ask again in some seconds, or name its pid"
    if any(offer.can for _, offer in sighting.offers):
        busy = any(offer.busy for _, offer in sighting.offers)
        return ("busy" if busy else "ready"), reason, fix
    return ("busy" if any(offer.busy for _, offer in declined) else "untraceable"), reason, fix


def stack_message(stack: ThreadStack) -> pb.ThreadStack:
    """One thread for `profctl where`."""
    return pb.ThreadStack(
        thread=stack.thread,
        name=text(stack.name),
        active=stack.active,
        owns_gil=stack.owns_gil,
        frames=map(_frame_message, stack.frames),
        incomplete=stack.incomplete,
        joins=stack.joins,
        lock_holder=stack.lock_holder,
        waits_gil=stack.waits_gil,
        stopped=stack.stopped,
    )


def collectives_message(said: JobVerdict) -> pb.Collectives:
    """What the flight recorders of a job say."""
    verdict = said.verdict
    return pb.Collectives(
        job=text(said.job),
        state=verdict.state.value,
        sentences=map(text, verdict.sentences),
        group=text(verdict.group),
        sequence=verdict.sequence,
        operation=text(verdict.operation),
        waited_ns=verdict.waited_ns,
        missing=[
            pb.MissingRank(
                name=each.name, last=each.last, at=_frame_message(each.at) if each.at else None, what=text(each.what)
            )
            for each in verdict.missing
        ],
        waiting=verdict.waiting,
        waits_at=_frame_message(verdict.waits_at) if verdict.waits_at else None,
        notes=map(text, verdict.notes),
        pids=said.pids,
    )


def _frame_message(frame: Frame) -> pb.Frame:
    return pb.Frame(function=text(frame.function), file=text(frame.file), line=max(0, min(frame.line, _INT32_MAX)))


def text(value: str) -> str:
    """Text that protobuf takes: targets choose some of it, and surrogates would raise."""
    return encodable(value[:STRING_BYTES_MAX])

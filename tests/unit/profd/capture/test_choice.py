"""Which source, and why none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from profd.capture.choice import Choice, choose, in_order, in_turn, is_launcher
from profd.capture.estimate import Headroom
from profd.limits import GiB, MiB
from profd.model.capture import Options, Reason, State
from profd.sources.base import Offer, Plan
from profd.sources.declaration import SERVED

from tests.support.captures import SECOND_NS, FakeSource, declare, process

NO_LIMIT = Headroom(None, None)


def sources() -> tuple[FakeSource, FakeSource]:
    return FakeSource("kineto", can_stop=False), FakeSource("pyspy")


def choice(*given: FakeSource, children: Any = (), headroom: Headroom = NO_LIMIT, **options: Any) -> Choice:
    asked = Options(**{"duration_ns": SECOND_NS, **options})
    return choose(process(), asked, given, children, lambda: headroom)


def test_the_best_that_can_whatever_the_order() -> None:
    kineto, pyspy = sources()
    chosen = choice(pyspy, kineto)
    assert chosen.source is kineto
    assert chosen.why == "the best source there is, and it serves the request"


def test_the_next_one_and_why() -> None:
    kineto, pyspy = sources()
    kineto.offered = Offer(False, "it has not registered.")
    chosen = choice(kineto, pyspy)
    assert chosen.source is pyspy
    assert chosen.why == "the first that serves the request (kineto: it has not registered)"


def test_a_source_that_can_kill_the_process_is_taken_by_name_and_force_alone() -> None:
    kineto, pyspy = sources()
    kineto.declaration = declare("kineto", danger="it can kill the process")
    for offered in (Offer(True), Offer(False, "held.", busy=True)):
        kineto.offered = offered
        assert choice(kineto, pyspy).source is pyspy
        assert choice(kineto, pyspy, force=True).source is pyspy
    kineto.offered = Offer(True)
    refused = choice(kineto, pyspy, source="kineto")
    assert (refused.source, refused.reason) == (None, Reason.NOT_HONOURED)
    assert refused.message == "it can kill the process; --source kineto --force records with it all the same"
    assert choice(kineto, pyspy, source="kineto", force=True).source is kineto


def test_sources_behind_the_one_that_serves_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    offer = FakeSource.offer
    monkeypatch.setattr(FakeSource, "offer", lambda self, process: asked.append(self.name) or offer(self, process))
    kineto, pyspy = sources()
    assert choice(pyspy, kineto).source is kineto
    assert asked == ["kineto"]
    kineto.offered = Offer(False, "it has not registered.")
    assert choice(pyspy, kineto).source is pyspy
    assert asked == ["kineto", "kineto", "pyspy"]


def test_by_name() -> None:
    kineto, pyspy = sources()
    chosen = choice(kineto, pyspy, source="pyspy")
    assert (chosen.source, chosen.why) == (pyspy, "asked for by name")
    unknown = choice(kineto, pyspy, source="nsys")
    assert (unknown.reason, unknown.source) == (Reason.NO_SOURCE, None)
    assert "kineto, pyspy" in unknown.message


def test_a_busy_source_is_not_replaced_by_a_lesser_one() -> None:
    kineto, pyspy = sources()
    kineto.offered = Offer(False, "torch.profiler runs.", busy=True)
    busy = choice(kineto, pyspy)
    assert (busy.state, busy.reason) == (State.BUSY, Reason.OTHER_PROFILER)
    assert busy.message == "kineto is held: torch.profiler runs; for samples instead: --source pyspy"
    assert choice(kineto, pyspy, source="pyspy").source is pyspy


def test_a_request_beyond_the_best() -> None:
    kineto, pyspy = sources()
    pyspy.planned = Plan(False, "it sees no iterations.", Reason.NOT_HONOURED)
    kineto.offered = Offer(False, "not there.")
    refused = choice(kineto, pyspy, duration_ns=0, iterations=3)
    assert (refused.state, refused.reason, refused.message) == (
        State.REFUSED,
        Reason.NOT_HONOURED,
        "it sees no iterations.",
    )


def test_strict() -> None:
    kineto, pyspy = sources()
    for source in (kineto, pyspy):
        source.planned = Plan(True, unserved={"memory": "no"})
    assert choice(kineto, pyspy, memory=True).source is kineto
    refused = choice(kineto, pyspy, memory=True, strict=True)
    assert (refused.reason, refused.source) == (Reason.NOT_HONOURED, None)
    assert "memory: no" in refused.message
    pyspy.planned = Plan(True)
    assert choice(kineto, pyspy, memory=True, strict=True).source is pyspy


def test_a_process_that_is_about_to_end_is_left_alone() -> None:
    kineto, pyspy = sources()
    kineto.planned = Plan(False, "the job ends in 5 s.", Reason.TARGET_ENDING)
    assert choice(kineto, pyspy).reason is Reason.TARGET_ENDING


@pytest.mark.parametrize(
    ("headroom", "options", "refused"),
    [
        (Headroom(1 * GiB, 10 * GiB), {}, True),
        (Headroom(10 * GiB, 1 * GiB), {}, True),
        (Headroom(10 * GiB, 10 * GiB), {}, False),
        (Headroom(1 * GiB, 1 * GiB), {"force": True}, False),
        (Headroom(1 * GiB, 1 * GiB), {"duration_ns": 2 * SECOND_NS}, False),
        (Headroom(1 * GiB, 1 * GiB), {"duration_ns": 0, "iterations": 3}, True),
        (Headroom(None, None), {}, False),
    ],
)
def test_estimates_beyond_the_headroom(headroom: Headroom, options: dict[str, Any], refused: bool) -> None:
    kineto, pyspy = sources()
    kineto.planned = Plan(True, memory_bytes=2 * GiB, trace_bytes=1 * GiB + MiB)
    chosen = choice(kineto, pyspy, headroom=headroom, **{"duration_ns": 10 * SECOND_NS, **options})
    assert (chosen.reason is Reason.OVER_LIMIT) == refused
    assert ("--force" in chosen.message) == refused


def test_nothing_serves_it_and_what_would() -> None:
    kineto, pyspy = sources()
    kineto.offered = Offer(False, "it has not registered.", "Set KINETO_USE_DAEMON=1 at its start.")
    pyspy.offered = Offer(False, "ptrace is refused.", "Run profd as root.", Reason.NOT_PERMITTED)
    refused = choice(kineto, pyspy)
    assert (refused.state, refused.reason) == (State.REFUSED, Reason.NOT_PERMITTED)
    assert "KINETO_USE_DAEMON" in refused.message
    assert "Run profd as root" in refused.message


class TestLauncher:
    def test_lists_its_traceable_children(self) -> None:
        kineto, _ = sources()
        launcher = process(command="/usr/bin/python3 -m torch.distributed.run --nproc 2 train.py")
        asked = Options(duration_ns=1)
        refused = choose(launcher, asked, [kineto], [process(12), process(11)], lambda: NO_LIMIT)
        assert (refused.state, refused.reason) == (State.REFUSED, Reason.LAUNCHER)
        assert "11, 12" in refused.message

    def test_alone_is_a_process_like_others(self) -> None:
        kineto, _ = sources()
        assert (
            choose(process(command="torchrun x.py"), Options(duration_ns=1), [kineto], [], lambda: NO_LIMIT).source
            is kineto
        )

    def test_anything_untraceable_with_traceable_children_is_one(self) -> None:
        kineto, _ = sources()
        kineto.offered = Offer(False, "not Python.")
        refused = choice(kineto, children=[process(11)])
        assert (refused.reason, "11" in refused.message) == (Reason.LAUNCHER, True)
        assert "kineto: not Python" in refused.message

    def test_a_source_that_was_named_says_why_it_cannot_whatever_children_there_are(self) -> None:
        kineto, pyspy = sources()
        kineto.offered = Offer(False, "PyTorch was started without it.", "Set KINETO_USE_DAEMON=1.")
        refused = choice(kineto, pyspy, children=[process(11)], source="kineto")
        assert (refused.state, refused.reason) == (State.REFUSED, Reason.NO_SOURCE)
        assert refused.message == (
            f"pid {process().id.pid} cannot be traced by kineto: PyTorch was started without it "
            "(Set KINETO_USE_DAEMON=1)"
        )

    def test_one_that_the_named_source_cannot_trace_is_still_a_launcher(self) -> None:
        kineto, _ = sources()
        kineto.offered = Offer(False, "it has not registered.")
        asked = Options(duration_ns=1, source="kineto")
        refused = choose(process(command="torchrun train.py"), asked, [kineto], [process(11)], lambda: NO_LIMIT)
        assert (refused.reason, "11" in refused.message) == (Reason.LAUNCHER, True)

    @pytest.mark.parametrize(
        ("command", "launcher"),
        [
            ("torchrun --nproc-per-node 2 train.py", True),
            ("/opt/venv/bin/python3.11 /opt/venv/bin/torchrun train.py", True),
            ("python -u -m torch.distributed.run train.py", True),
            ("python -m torch.distributed.launch train.py", True),
            ("python3 -X dev /usr/bin/accelerate launch train.py", True),
            ("-bash", True),
            ("bash -c python train.py", True),
            ("python train.py torchrun", False),
            ("python -c import torchrun", False),
            ("python -m", False),
            ("python", False),
            ("", False),
            ("   ", False),
        ],
    )
    def test_command_lines(self, command: str, launcher: bool) -> None:
        assert is_launcher(process(command=command)) == launcher


def test_an_offer_may_put_a_better_source_first() -> None:
    sdk, (kineto, pyspy) = FakeSource("sdk"), sources()
    assert choice(sdk, kineto, pyspy).source is sdk
    sdk.offered = Offer(True, after=("kineto",))
    assert choice(sdk, kineto, pyspy).source is kineto
    # One that cannot is no better one.
    kineto.offered = Offer(False, "it has not registered")
    assert choice(sdk, kineto, pyspy).source is sdk
    # One that is busy is the answer, as ever.
    kineto.offered = Offer(False, "torch.profiler runs", busy=True)
    assert choice(sdk, kineto, pyspy).state is State.BUSY


def test_who_comes_after_another_still_comes_before_the_rest() -> None:
    sdk, (kineto, pyspy) = FakeSource("sdk"), sources()
    sdk.offered = Offer(True, after=("kineto", "nothing-we-know"))
    kineto.planned = Plan(False, "it is about to end", Reason.NOT_HONOURED)
    assert choice(sdk, kineto, pyspy).source is sdk
    named = [source.name for source, _ in in_turn(process(), in_order((pyspy, kineto, sdk)))]
    assert named == ["kineto", "sdk", "pyspy"]


def test_sources_that_keep_all_do_not_serve_the_last_seconds() -> None:
    jax, (kineto, pyspy) = FakeSource("jax"), sources()
    jax.declaration = declare("jax", server=SERVED)
    assert choice(kineto, pyspy, jax, last_ns=SECOND_NS).source is jax
    refused = choice(kineto, pyspy, last_ns=SECOND_NS)
    assert (refused.source, refused.reason) == (None, Reason.NOT_HONOURED)
    assert "does not serve --last" in refused.message


def test_sources_that_cannot_bound_their_cost_do_not_serve_the_bound() -> None:
    sdk, (kineto, pyspy) = FakeSource("sdk"), sources()
    sdk.declaration = replace(sdk.declaration, common=replace(sdk.declaration.common, max_overhead=SERVED))
    assert choice(kineto, pyspy, sdk, max_overhead=0.02).source is sdk
    sdk.offered = Offer(False, "it is not attached")
    refused = choice(kineto, pyspy, sdk, max_overhead=0.02)
    assert (refused.source, refused.reason) == (None, Reason.NOT_HONOURED)
    assert "--max-overhead" in refused.message
    assert "profclient.attach()" in refused.message

"""What is said of a capture before anything is touched."""

from __future__ import annotations

from dataclasses import replace

from profd.capture.planner import Planner, Settings
from profd.sources.base import Plan
from profd.targets.selector import Selector

from tests.support.captures import ALICE, ROOT, FakeSource, FakeTable, FixedHeadroom, process, request


async def test_what_is_done_beside_the_source_is_a_risk_where_there_is_one() -> None:
    # GIVEN something beside the source that matters to processes with GPUs
    source = FakeSource()
    source.planned = replace(Plan(True), risks=("the source's own",))
    table = FakeTable([process(100, gpus=(0,)), process(101)])
    settings = Settings("host", beside_risk=lambda process, options: "clocks are held" if process.gpus else "")
    planner = Planner([source], table, FixedHeadroom(), settings, {})
    # WHEN it is estimated THEN each process is told what concerns it
    plans = await planner.estimate(ALICE, request(100, 101))
    risks = {plan.target.pid: plan.choice.plan.risks for plan in plans if plan.choice.plan}
    assert risks == {100: ("the source's own", "clocks are held"), 101: ("the source's own",)}


async def test_to_an_admin_nothing_is_private() -> None:
    table = FakeTable([process(100, private=True)])
    planner = Planner([FakeSource()], table, FixedHeadroom(), Settings("host"), {})
    for caller, private in ((ALICE, True), (ROOT, False)):
        [plan] = await planner.estimate(caller, request(100))
        [sighting] = await planner.targets(caller, Selector())
        found = await planner.processes(caller, Selector(pids=(100,)))
        assert plan.process is not None
        assert [p.private for p in (plan.process, sighting.process, *found.allowed)] == [private] * 3

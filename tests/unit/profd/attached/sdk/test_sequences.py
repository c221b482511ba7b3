"""A flight recorder that is asked at the end of a window: when, and what becomes of its answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from profd.attached.agents.protocol import PacketKind
from profd.attached.sdk import remembered
from profd.limits import RECALL_AT_END_BYTES_MAX
from profd.model.capture import Recording
from profd.model.remembered import REMEMBERED

from tests.support.agent_server import tell
from tests.support.fake_agent import FakeAgent
from tests.support.sdk_rig import Rig

SAID = b'{"entries":[]}'
SMALL = {"framework": "torch 2.13.0", "can": "ranges,recall", "world": 4, "kept": 300}


async def stopped(rig: Rig, fake: FakeAgent) -> asyncio.Task[Recording]:
    """A recording whose agent has just stopped."""
    recording = rig.record()
    epoch = await rig.armed(fake)
    fake.send(PacketKind.STOPPED, epoch, reason="window", last=2_000, events=1)
    return recording


async def test_a_small_one_is_asked_before_the_process_is_let_go(rig: Rig) -> None:
    fake = await rig.attach(**SMALL)
    recording = await stopped(rig, fake)
    question = await fake.expect(PacketKind.RECALL)
    assert question.fields["entries"] == "1"
    assert not recording.done()
    tell(fake, question.epoch, SAID)
    done = await recording
    assert [file.format for file in done.files] == ["chunks", REMEMBERED]
    assert Path(done.files[1].path).read_bytes() == SAID
    assert not any("collectives" in warning for warning in done.warnings)
    fake.close()


@pytest.mark.parametrize(
    "changes",
    [{"kept": 301}, {"kept": 0}, {"kept": ""}, {"can": "ranges"}, {"framework": "jax 0.4"}, {"world": 1}],
    ids=["large", "none", "unknown", "an earlier agent", "no torch", "alone"],
)
async def test_one_that_may_hold_up_its_job_or_has_nothing_to_say_is_not_asked(
    rig: Rig, changes: dict[str, object]
) -> None:
    said = {key: value for key, value in {**SMALL, **changes}.items() if value != ""}
    fake = await rig.attach(**said)
    done = await (await stopped(rig, fake))
    assert [file.format for file in done.files] == ["chunks"]
    await fake.expect(PacketKind.RELEASE)  # nothing before
    fake.close()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (None, "not recorded: torch is not loaded"),
        (SAID.ljust(RECALL_AT_END_BYTES_MAX + 1), f"its flight recorder said {RECALL_AT_END_BYTES_MAX + 1} bytes"),
    ],
    ids=["nothing", "too much"],
)
async def test_why_there_is_no_answer_is_a_warning(rig: Rig, said: bytes | None, why: str) -> None:
    fake = await rig.attach(**SMALL)
    recording = await stopped(rig, fake)
    question = await fake.expect(PacketKind.RECALL)
    if said is None:
        fake.send(PacketKind.RECALLED, question.epoch, why="torch is not loaded")
    else:
        tell(fake, question.epoch, said)
    done = await recording
    assert [file.format for file in done.files] == ["chunks"]
    assert any(why in warning for warning in done.warnings), done.warnings
    fake.close()


async def test_others_that_are_silent_are_waited_for_no_longer_than_that(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "RECALL_AT_END_SECONDS", 0.0)
    fake = await rig.attach(**SMALL)
    done = await (await stopped(rig, fake))
    assert [file.format for file in done.files] == ["chunks"]
    assert any("others of its user were asked meanwhile" in warning for warning in done.warnings)
    fake.close()

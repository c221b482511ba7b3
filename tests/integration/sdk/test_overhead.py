"""What recording costs a process: judged in a short window, told by source in the trace and for Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.integration.daemon.test_work import metrics_of
from tests.integration.sdk.test_end_to_end import CALLS
from tests.support.attached import COUNT, Captures, attached, values, whole
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.waiting import until

pytestmark = pytest.mark.slow

SECOND_NS = 1_000_000_000
STEPPING = 'profd_sdk_step_seconds_total{when="after"}'
STEPS = COUNT.replace("    i += 1\n", "    i += 1\n    profclient.step()\n")


@pytest.fixture
def observed() -> Iterator[RunningDaemon]:
    with running_daemon("--metrics", "127.0.0.1:0", environ={"PROFD_SDK_ARENA_BYTES": "24MiB"}) as daemon:
        yield daemon


def seconds(text: str) -> dict[str, float]:
    """What a cost's detail says of each source."""
    found = re.findall(r"\b([a-z]+) ([0-9.]+) (s|ms)\b", text)
    return {source: float(spent) / (1000 if unit == "ms" else 1) for source, spent, unit in found}


def test_a_window_of_a_second_is_judged(observed: RunningDaemon, tmp_path: Path) -> None:
    with attached(observed, tmp_path, CALLS) as job:
        capture = Captures(observed).start(
            job.pid, duration_ns=3 * SECOND_NS // 2, stacks=True, max_overhead=0.005, source="sdk"
        )
        [target] = Captures(observed).ended(capture.id).targets
        assert target.state == pb.STATE_STORED, target.message
        [said] = [text for text in target.not_honoured if text.startswith("stacks:")]
        assert "left out from" in said
        assert whole(values(observed, target.trace))
        told = seconds(target.cost.detail)
        assert told.keys() >= {"ranges", "stacks"}
        found = metrics_of(observed)
        assert found['profd_sdk_record_seconds_total{kind="stacks"}'] > 0
        assert found['profd_sdk_record_seconds_total{kind="ranges"}'] > 0
        assert found["profd_sdk_send_seconds_total"] > 0
        job.check_results()


def test_steps_before_during_and_after_are_told(observed: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(observed)
    with attached(observed, tmp_path, STEPS) as job:
        assert STEPPING not in metrics_of(observed)  # unknown is not zero
        job.counts_on()  # steps that nobody records
        [target] = captures.record(job.pid).targets
        assert target.state == pb.STATE_STORED, target.message
        assert target.cost.how == "measured"
        assert re.match(r"a step took [0-9.]+ ms before, [0-9.]+ ms during", target.cost.detail)
        # The first steps after it are waited for a quarter of a second, which a busy machine may not give the program.
        until(lambda: "after" in captures.record(job.pid).targets[0].cost.detail, "steps after a recording are seen")
        until(lambda: STEPPING in metrics_of(observed), "the seconds after are over, and summed up")
        for when in ("during", "after"):
            assert metrics_of(observed)[f'profd_sdk_step_seconds_total{{when="{when}"}}'] > 0
        job.check_results()

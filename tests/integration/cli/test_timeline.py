"""`profctl timeline`, with a daemon (its confined worker) and on a store alone."""

import json

import pytest

from tests.integration.cli.conftest import on_both
from tests.support.timeline_cases import case, xspace_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cli")]


def stored(profctl, file, content):
    file.write_bytes(content)
    done = profctl("import", str(file), "--json")
    assert done.code == 0, done.err
    return done.json["trace"]


@on_both
def test_lines_of_a_trace(profctl, tmp_path):
    trace = stored(profctl, tmp_path / "x.xplane.pb", xspace_of(case("two_groups")["input"]))
    answer = profctl("timeline", trace, "--line", "ops", "--line", "steps", "--json")
    assert answer.code == 0, answer.err
    events = [json.loads(line) for line in answer.out.splitlines()]
    on_device = [event for event in events if event["plane"] == "/device:GPU:0"]
    assert [(event["what"], event["name"], event["step"]) for event in on_device] == [
        ("steps", "train 0", "train 0"),
        ("steps", "train 1", "train 1"),
        ("ops", "Mul", "train 0"),
        ("ops", "Mul", "train 1"),
    ]
    shown = profctl("timeline", trace)
    assert shown.code == 0, shown.err
    assert "/device:GPU:0  Framework Ops - from #0  [derived]" in shown.out
    assert "Mul  [train 1]" in shown.out
    assert "/device:GPU:0  TensorFlow Ops  [derived]" in profctl("timeline", trace, "--rules", "classic").out


def test_no_lines(profctl, tmp_path):
    trace = stored(profctl, tmp_path / "x.xplane.pb", xspace_of(case("memcpy_only")["input"]))
    assert (profctl("timeline", trace, "--json").code, profctl("timeline", trace, "--json").out) == (0, "")
    assert "hlo_module" in profctl("timeline", trace).err
    assert profctl("timeline", trace, "--line", "nonsense").code == 2


def test_a_trace_without_work_on_a_device_has_no_lines_and_says_what_to_ask_instead(profctl, tmp_path):
    content = json.dumps({"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]}).encode()
    trace = stored(profctl, tmp_path / "t.json", content)
    answer = profctl("timeline", trace)
    assert answer.code == profctl("gpu", trace).code == 0
    assert "profctl steps" in answer.err
    assert (profctl("timeline", trace, "--json").code, profctl("timeline", trace, "--json").out) == (0, "")

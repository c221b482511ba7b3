"""A recording begins and ends, and the program sees its interpreter as it was: it may be walking any of this."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

import pytest
from profclient.agent import NVTX, NVTX_VARIABLE

from tests.integration.torch_observer.conftest import torch_builds  # noqa: F401 - a fixture
from tests.support.agent_daemon import DISARMED
from tests.support.sdk_jobs import Agents

ALL = "ranges,shapes,stacks,c_calls,modules,torch:{torch},memory,flops,cuda,gpu_fallback,force"

SEEN = """
import atexit, gc, os, signal, sys, threading, warnings
from profclient import agent
def seen():
    return {
        "modules": list(sys.modules),
        "finders": [*map(id, sys.meta_path), *map(id, sys.path_hooks)],
        "path": list(sys.path),
        "filters": list(warnings.filters),
        "threads": [*threading._active, *map(str, threading._limbo)],
        "at exit": atexit._ncallbacks(),
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "environment": dict(os.environ),
        "gc": list(gc.callbacks),
    }
def told(before):
    now = seen()
    return {key: (set(map(str, now[key])) ^ set(map(str, before[key])) if isinstance(now[key], list) else now[key])
            for key in before if now[key] != before[key]}
seen()
print("ready", flush=True)
sys.stdin.readline()
before = seen()
print("go", flush=True)
sys.stdin.readline()
while agent.hooks_begun() == 0: pass
print(told(before), flush=True)
sys.stdin.readline()
print(told(before), flush=True)
sys.stdin.read()
"""


def check(agents: Agents, code: str, torch: str, environ: Mapping[str, str]) -> str:
    """Nothing changes but that collections are told of meanwhile; what was not honoured."""
    job = agents.job(code, environ={**environ, NVTX_VARIABLE: NVTX}, attach=False)
    link = agents.daemon.accept()
    job.say("go")
    assert job.line() == "go"
    os.close(link.arm(ALL.format(torch=torch), iterations=5).fd)
    job.say("armed")
    assert job.line() == "{'gc': {'<built-in function on_collection>'}}"
    fields = link.stop().fields
    if not link.disarmed:
        link.next(DISARMED)
    link.release()
    job.say("over")
    assert job.line() == "{}"
    assert job.end() == 0
    return fields.get("not_honoured", "")


ATTACH = "import profclient\nprofclient.attach()\n"


def test_a_program_that_has_imported_nothing(agents):
    assert "torch" in check(agents, ATTACH + SEEN, "observer", {})


def test_a_program_that_attaches_late(agents):
    code = "import gc, json, socket, threading\n" + ATTACH + SEEN
    check(agents, code, "auto", {})


@pytest.mark.parametrize("order", [ATTACH + "import torch\n", "import torch\n" + ATTACH])
def test_a_program_with_torch_and_an_observer(agents, torch_builds, order):  # noqa: F811 - the fixture
    left_out = check(
        agents, order + SEEN, "observer", {"PROFD_TORCH_DIR": str(torch_builds), "PYTHONWARNINGS": "ignore"}
    )
    assert not {"torch", "stacks", "shapes", "memory"} & {line.partition(":")[0] for line in left_out.split("; ")}


@pytest.mark.skipif(not shutil.which("c++"), reason="the build is what it would be refused without")
def test_a_program_with_torch_and_no_observer(agents, tmp_path):
    pytest.importorskip("torch", reason="needs torch")
    nothing = {"PROFD_TORCH_DIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    assert "memory" in check(agents, ATTACH + "import torch\n" + SEEN, "auto", nothing)


def test_a_torch_whose_import_was_hidden_from_us_is_not_imported_for(agents):
    """Its adapter would have to be imported on our thread."""
    code = ATTACH + "import sys, types\nsys.modules['torch'] = types.ModuleType('torch')\n" + SEEN
    assert "call profclient.attach() after `import torch`" in check(agents, code, "auto", {})

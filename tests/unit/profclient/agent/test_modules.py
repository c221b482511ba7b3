"""What attaching brings into a program: our own modules, and of the standard library next to nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Built in or frozen, all of them: no file of the program's can take their place.
OF_THE_STANDARD_LIBRARY = {"__future__", "atexit", "gc", "pwd"}  # pwd: where there is no HOME

# A checkout's finder imports what it needs when it first finds something; tools/test_other_pythons has none of it.
READY = 'import sys\nif "_editable_skbc_profd" in sys.modules: import importlib.machinery, importlib.util\n'
ATTACH = """
before = set(sys.modules)
import profclient
profclient.attach(quiet=True)
print(*(name for name in set(sys.modules) - before if name.partition(".")[0] != "profclient"))
"""


def run(code: str, *flags: str, **environ: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in ("HOME", "PROFD_ATTACH")}
    done = subprocess.run(
        [sys.executable, *flags, "-c", code],
        env={**kept, "PROFD_ADDRESS": "unix:/nowhere/profd.sock", **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("flags", [(), ("-I",)])
@pytest.mark.parametrize("environ", [{}, {"HOME": "/nowhere", "PROFD_ADDRESS": ""}])
def test_attaching_imports_no_more_than_it_says(flags: tuple[str, ...], environ: dict[str, str]) -> None:
    found = set(run(READY + ATTACH, *flags, **environ).split())
    assert found <= OF_THE_STANDARD_LIBRARY


def test_no_file_of_the_program_is_taken_for_one_of_the_standard_library(tmp_path) -> None:
    for name in ("json", "types", "select", "ctypes", "threading", "typing", "signal", "atexit", "enum", "site"):
        (tmp_path / f"{name}.py").write_text("raise SystemError(__name__)\n")
    code = f"{READY}sys.path.insert(0, {str(tmp_path)!r})\n{ATTACH}"
    assert set(run(code).split()) <= OF_THE_STANDARD_LIBRARY


def test_a_framework_that_is_loaded_lazily_is_left_alone() -> None:
    """Its version is read past __getattribute__, which would load it."""
    code = """
import sys, types
class Lazy(types.ModuleType):
    def __getattribute__(self, name): raise SystemError(name)
sys.modules["jax"] = Lazy("jax")
from profclient import agent
print(agent.attach(quiet=True).state, repr(agent._framework()))
"""
    assert run(code) == "looking ''\n"


def test_a_module_that_cannot_be_imported_takes_only_its_own_options_with_it() -> None:
    code = """
import sys
sys.modules["profclient.nvtx"] = None  # an import of it raises
import os
from profclient import agent
os.environ[agent.NVTX_VARIABLE] = agent.NVTX
print(agent.attach(quiet=True).state)
agent.start_hooks({"nvtx": "", "modules": "", "stacks": ""})  # of these two one needs a recording
print(*agent._active)
print(*agent.stop_hooks(), sep="; ")
"""
    attached, active, not_honoured = run(code).splitlines()
    assert (attached, active) == ("looking", "modules garbage")
    assert not_honoured.startswith("nvtx: profclient.nvtx cannot be imported: ")


def test_a_sentence_of_a_hook_stays_one() -> None:
    code = """
from profclient import agent
def start(options): raise agent.NotHonoured("it is not ready; capture again")
agent.register_hook("modules", start, lambda options: None)
print(agent.attach(quiet=True).state)
agent.start_hooks({"modules": ""})
print(*agent.stop_hooks())
"""
    assert run(code).splitlines() == ["looking", "modules: it is not ready, capture again"]


def test_attaching_brings_only_what_a_capture_can_need() -> None:
    """Each module is memory of a process that may never be recorded."""
    code = """
import os, sys
from profclient import agent
optional = ("nvtx", "monitoring", "profile_functions")
def hooks(): return [name for name in optional if f"profclient.{name}" in sys.modules]
agent.attach(quiet=True)
print(*hooks())
os.environ[agent.NVTX_VARIABLE] = agent.NVTX
agent.start_hooks({})  # too late
print(hooks(), *agent.stop_hooks())
agent.attach(quiet=True)
print(*hooks())
"""
    way = "monitoring" if sys.version_info >= (3, 12) else "profile_functions"
    first, late, again = run(code, NVTX_INJECTION64_PATH="").splitlines()
    assert (first, again) == (way, f"nvtx {way}")
    assert late == f"['{way}'] nvtx: NVTX_INJECTION64_PATH did not name profd's library when this process attached"


def test_a_site_that_lacks_functions_is_enough() -> None:
    """That of an old virtualenv."""
    code = """
import site
del site.getsitepackages, site.getusersitepackages
from profclient import agent
print(agent.attach(quiet=True).state, "stacks" in agent._hooks)
from profclient import tracer
print(site.getuserbase() + "/" in tracer.path_prefixes())
"""
    assert run(code) == "looking True\nTrue\n"

"""`profctl run`: what it gives the command, and what it becomes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from profclient.launch import STARTUP, environment, plain_command

# Nowhere: these tests need no daemon, and must not find one of this machine's.
ENVIRON = {**os.environ, "PROFD_ADDRESS": "unix:/nowhere/profd.sock", "PROFD_ATTACH": ""}


def run(*command: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    profctl = [sys.executable, "-c", "from profclient.cli import main; main()", "run", "--"]
    return subprocess.run(
        [*profctl, *command], env={**ENVIRON, **(environ or {})}, capture_output=True, text=True, check=False
    )


def test_the_path_of_the_user_comes_after_ours():
    assert environment({"PYTHONPATH": "/a:/b"})["PYTHONPATH"] == f"{STARTUP}:/a:/b"


@pytest.mark.parametrize("environ", [{}, {"PYTHONPATH": ""}])
def test_no_empty_entry_that_would_mean_the_working_directory(environ):
    assert environment(environ)["PYTHONPATH"] == str(STARTUP)


def test_a_program_attaches_and_its_children_do():
    code = (
        "import subprocess, sys; from profclient import agent; print(agent._attachment.state, flush=True); "
        "sys.argv[1:] and subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
    )
    done = run(sys.executable, "-c", code, code)
    assert done.stdout.split() == ["looking", "looking"]
    assert done.stderr.count("\n") == 1, done.stderr  # that there is no daemon


def test_nothing_of_it_is_seen_on_the_path():
    done = run(sys.executable, "-c", "import sys; print([entry for entry in sys.path if 'startup' in entry])")
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (["-c", "import sys; sys.exit(41)"], 41),
        (["-c", "import os; os.kill(os.getpid(), 15)"], -signal.SIGTERM),
        (["-c", "raise SystemError"], 1),
    ],
)
def test_its_exit_is_the_commands(program, code):
    assert run(sys.executable, *program).returncode == code


def test_a_broken_pipe_kills_the_command_as_it_would_without_us():
    assert run("sh", "-c", "kill -PIPE $$").returncode == -signal.SIGPIPE


def test_its_arguments_are_left_alone():
    assert run("echo", "--json", "-h", "--", "a b").stdout == "--json -h -- a b\n"


def test_a_command_that_is_not_there():
    done = run("no-such-command")
    assert done.returncode == 127
    assert "there is no command 'no-such-command'" in done.stderr


def test_a_command_that_cannot_be_run(tmp_path):
    (tmp_path / "file").write_text("")
    assert run(str(tmp_path / "file")).returncode == 126


def test_the_users_own_sitecustomize_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.seen = __file__\n")
    done = run(
        sys.executable, "-c", "import sys; print(seen, sys.modules['sitecustomize'].__file__)",
        environ={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.split() == [str(tmp_path / "sitecustomize.py")] * 2


def test_the_users_own_sitecustomize_may_fail_as_before(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('of the user')\n")
    done = run(sys.executable, "-c", "print('goes on')", environ={"PYTHONPATH": str(tmp_path)})
    assert done.stdout == "goes on\n"
    assert "of the user" in done.stderr


def test_it_can_be_switched_off():
    done = run(
        sys.executable, "-c", "from profclient import agent; print(agent._attachment.state)",
        environ={"PROFD_ATTACH": "0"},
    )  # fmt: skip
    assert done.stdout == "off\n"


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_flags_that_ignore_the_environment_keep_it_out(flag):
    done = run(sys.executable, flag, "-c", "import sys; print('profclient.agent' in sys.modules)")
    assert done.stdout == "False\n"


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="the only Python at hand has profclient")
def test_a_python_without_profclient_runs_and_says_so():
    base: str = sys.__dict__["_base_executable"]
    done = run(base, "-c", "print('runs')")
    assert done.stdout == "runs\n"
    assert "has no profclient and stays unattached: run" in done.stderr


SUB_INTERPRETERS = """
import sys
try: import _interpreters as interpreters
except ImportError: import _xxsubinterpreters as interpreters
for _ in range(2):
    interpreters.run_string(interpreters.create(), "import sys; print([m for m in sys.modules if 'profclient' in m])")
"""


def test_sub_interpreters_are_quiet_and_have_nothing_of_it():
    done = run(sys.executable, "-c", SUB_INTERPRETERS)
    assert done.stdout == "[]\n[]\n"
    assert done.stderr.count("\n") == 1, done.stderr  # that there is no daemon


def test_the_command_of_a_run_is_told_from_its_options():
    assert plain_command(["run", "--", "--cuda"]) == ["--cuda"]
    assert plain_command(["run", "python", "--", "-c"]) == ["python", "--", "-c"]
    for other in (
        ["run"],
        ["run", "--"],
        ["run", "--cuda", "--", "a"],
        ["run", "-h"],
        ["ps"],
        [],
        ["--store", "run", "a"],
    ):
        assert plain_command(other) == []


def test_what_it_imports_before_the_command_runs():
    code = (
        "import os, sys\n"
        "if '_editable_skbc_profd' in sys.modules: import importlib.machinery, importlib.util\n"  # a checkout's finder
        "before = set(sys.modules)\n"
        "def exec(file, arguments, environ): print(*set(sys.modules) - before); raise SystemExit\n"
        "os.execvpe = exec; sys.argv = ['profctl', 'run', '--', 'true']\n"
        "from profclient.cli import main; main()"
    )
    # A checkout's libraries are elsewhere, and are not looked for where one is named.
    environ = {**ENVIRON, "NVTX_INJECTION64_PATH": "/another/tool.so"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    brought = {name for name in done.stdout.split() if name.partition(".")[0] != "profclient"}
    assert brought <= {"__future__"}


def test_a_program_without_a_sitecustomize_has_none():
    done = run(
        sys.executable,
        "-c",
        "import sys; print('sitecustomize' in sys.modules, __import__('os').environ.get('PROFD_RUN'))",
    )
    assert done.stdout == f"{plainly_there()} None\n"


def plainly_there() -> bool:
    code = "import sys; print('sitecustomize' in sys.modules)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"

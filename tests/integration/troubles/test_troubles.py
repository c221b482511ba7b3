"""Seven troubles, looked for as a new user would: `profctl start` or `where`, and at most one more command.

Each program of `tests/corpus/answers/attached` is a trouble; the answer names its cause.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from profd.sources.pyspy import tool

from tests.corpus.answers import labels
from tests.integration.cli.conftest import PROFCTL, Done, Host, sources_of
from tests.integration.torch_observer.conftest import torch_builds  # noqa: F401 - a fixture
from tests.support import jax_jobs, python_jobs
from tests.support.daemon import running_daemon
from tests.support.waiting import until

CAPTURES_SECONDS = 600.0  # for as many as it takes: at load 40 each takes half a minute
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(tool.find() is None, reason="py-spy is not installed"),
    python_jobs.needs_ptrace,
]

LABELS = {**labels("attached"), **labels("meeting"), **labels("jax")}
SAMPLED = "8s"  # samples stand beside operators where the sampler's start is a small part of the window


@pytest.fixture(scope="module")
def host(torch_builds: Path) -> Iterator[Host]:  # noqa: F811 - a fixture
    with running_daemon(environ={"PROFD_SDK_ARENA_BYTES": "64MiB"}) as daemon:
        yield Host(daemon)


@contextlib.contextmanager
def trouble(host: Host, *command: str, **environ: str) -> Iterator[int]:
    """A program that has begun its work; its pid."""
    with subprocess.Popen(
        command, env={**host.daemon.environ, **environ}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as job:
        assert job.stdout is not None
        try:
            assert job.stdout.readline() == "ready\n"
            yield job.pid
        finally:
            job.kill()


@contextlib.contextmanager
def attached(host: Host, program: str) -> Iterator[int]:
    """A program under `profctl run`."""
    with trouble(host, *PROFCTL, "run", "--", sys.executable, str(LABELS[program].file)) as pid:
        until(lambda: "sdk" in sources_of(host, pid), "the program is attached")
        yield pid


def start(host: Host, pid: int, lasting: str, *options: str) -> str:
    """The answer of a capture."""
    done = host.profctl("start", "--pid", str(pid), "--duration", lasting, *options)
    assert done.code == 0, done.err + done.out
    return done.out


def sampled(host: Host, pid: int) -> str:
    """The same, with samples beside operators: on a host that is busy enough a sampler begins late, or does without."""
    found: list[str] = []

    def seen() -> bool:
        found.append(start(host, pid, SAMPLED))
        return "outside operators, by samples" in found[-1]

    until(seen, "functions are seen outside operators", CAPTURES_SECONDS)
    return found[-1]


def outside(answer: str) -> str:
    """The function that ran longest while no operator did."""
    return answer.partition("outside operators, by samples\n")[2].splitlines()[0]


def finding(answer: str, sentence: str) -> bool:
    """It is among the causes that the answer names, wherever its lines are broken."""
    return re.search(rf"^  finding +{sentence}", flat(answer), re.MULTILINE) is not None


def names_the_cause(answer: str, program: str) -> bool:
    """The answer has each sentence that the program's label says."""
    return all(finding(answer, each) for each in LABELS[program].says)


def flat(answer: str) -> str:
    """Each part of it in one line."""
    return re.sub(r"\n {16}", " ", answer)


def shown(host: Host, answer: str) -> dict[str, Any]:
    """The same answer for programs."""
    [trace] = re.findall(r"^  trace +(\w+)", answer, re.MULTILINE)
    found: dict[str, Any] = host.profctl("show", trace, "--json").json
    return found


def adds_up(found: dict[str, Any]) -> bool:
    """All of the window is accounted for on the leading thread: by what was recorded, and by the kernel's counts."""
    account = found["accounting"]
    thread = account["threads"][account["leading"]]
    parts = (
        ("operators_ns", "calls_ns", "sampled_ns", "ranges_ns", "nothing_ns"),
        ("cpu_ns", "run_queue_ns", "off_cpu_ns"),
    )
    sums = [sum(thread[key] for key in keys) for keys in parts]
    return all(0.98 <= each / account["window_ns"] <= 1.02 for each in sums) and (
        thread["nothing_ns"] < 0.2 * account["window_ns"]
    )


def whole(host: Host, answer: str) -> tuple[str, dict[str, Any]] | None:
    """The answer and what was found; None where a sampler came late on a busy host: it says what it has not seen."""
    found = shown(host, answer)
    return (answer, found) if adds_up(found) else None


def following(host: Host, answer: str) -> Done:
    """What the command says that the answer advises."""
    [advised] = re.findall(r"^next: profctl (.+)", answer, re.MULTILINE)
    return host.profctl(*shlex.split(advised))


def test_a_loader_in_the_main_process(host: Host) -> None:
    with attached(host, "loader") as pid:
        answer = sampled(host, pid)
        found = shown(host, answer)
    assert outside(answer).endswith(": Rows.__getitem__")
    assert names_the_cause(answer, "loader")
    assert re.search(r"outside operators \d\d %", answer)
    thread = found["accounting"]["threads"][found["accounting"]["leading"]]
    assert 0 < thread["operators_ns"] < found["accounting"]["window_ns"] / 2
    assert adds_up(found)
    # Samples are beside: names of what was recorded are not mixed with them, unless asked for.
    assert not [row for row in found["top"] if "__getitem__" in row["name"]]


def test_a_quadratic_metric_and_a_read_of_the_loss_in_each_step(host: Host) -> None:
    with attached(host, "metric") as pid:
        answer = until(lambda: leads_to_callers(sampled(host, pid)), "no steps are slow by chance", CAPTURES_SECONDS)
        assert adds_up(shown(host, answer))
    assert outside(answer).endswith(": inversions")
    assert names_the_cause(answer, "metric")
    assert re.search(r"host reads +[\d,]+ values of tensors \(\.item\(\), float\(\), if\): 1 a step", answer)


def leads_to_callers(answer: str) -> str:
    """The answer whose `next:` shows all paths; empty: it leads to steps that are slow by chance, on a busy host."""
    return answer if re.search(r"^next: profctl tree \w+ --merged$", answer, re.MULTILINE) else ""


def test_steps_that_save_a_checkpoint(host: Host) -> None:
    with attached(host, "checkpoint") as pid:
        answer = until(
            lambda: leads_to_the_checkpoint(host, sampled(host, pid)),
            "the steps that cost most are named",
            CAPTURES_SECONDS,
        )
    assert outside(answer).endswith(": save_checkpoint")


def leads_to_the_checkpoint(host: Host, answer: str) -> str:
    """The answer whose `next:` looks into steps that save; empty: on a busy host others may be slow by chance."""
    advised = re.search(r"^next: profctl top \w+ --step (\d+)(?:\.\.(\d+))?\n", answer, re.MULTILINE)
    steps = range(int(advised[1]), int(advised[2] or advised[1]) + 1) if advised else ()
    saving = sum(200 <= number % 250 <= 210 for number in steps)
    named = 2 * saving > len(steps) and ": save_checkpoint" in following(host, answer).out
    return answer if named else ""


def test_a_rank_that_waits_for_a_lock(host: Host, tmp_path: Path) -> None:
    with contextlib.ExitStack() as ranks:
        pids = [
            ranks.enter_context(
                trouble(
                    host,
                    *(sys.executable, str(LABELS["lock"].file), str(tmp_path / "meeting")),
                    RANK=str(rank),
                    WORLD_SIZE="4",
                    OMP_NUM_THREADS="1",
                )
            )
            for rank in range(4)
        ]
        asked = [argument for pid in pids for argument in ("--pid", str(pid))]
        answer = until(lambda: hung(host.profctl("where", *asked).out), "all ranks wait")
    collective, waits = answer
    assert "3 threads of 3 processes:" in collective
    assert f"rank 2 pid {pids[2]} MainThread ({''.join(LABELS['lock'].says)})" in waits
    assert waits.splitlines()[1].strip().startswith("log_metrics ")


def hung(answer: str) -> tuple[str, str] | None:
    """The groups of the ranks that wait in the collective and of the one that does not; None: not yet."""
    groups = answer.split("\n\n")
    collective = next((group for group in groups if " all_reduce " in group and "3 threads" in group), None)
    waits = next((group for group in groups if " log_metrics " in group), None)
    return None if collective is None or waits is None else (collective, waits)


def test_tensors_that_are_kept_in_a_list(host: Host) -> None:
    with attached(host, "leak") as pid:
        answer = until(lambda: grows(start(host, pid, "3s")), "looks at its memory see that it grows", CAPTURES_SECONDS)
        assert f"next: profctl start --pid {pid} --duration 3s --memory --stacks\n" in answer
        assert re.search(r"\n  process .*memory [\d.]+ MB, grew [\d.]+ [kM]B \([\d.]+ [kM]B/s", flat(answer))
        again = following(host, answer).out
        assert re.search(r"still alive .*\n +[\d.]+ [kM]B +[\d,]+ x  grows  .*remember > aten::mul\n", again)
        answer = start(host, pid, "2s", "--memory")
        assert re.search(r"still alive .*\n +[\d.]+ [kM]B +[\d,]+ x  grows  aten::mul\n", answer)
        assert f"next: profctl start --pid {pid} --duration 2s --memory --stacks\n" in answer


def grows(answer: str) -> str:
    """The answer that says so; empty: on a host that is busy enough few tensors are made in a window."""
    return answer if names_the_cause(answer, "leak") else ""


def test_a_handler_that_computes_while_threads_wait_for_a_lock(host: Host) -> None:
    with attached(host, "server") as pid:
        answer, found = until(
            lambda: whole(host, start(host, pid, "4s")), "all of the window is accounted for", CAPTURES_SECONDS
        )
        where = host.profctl("where", "--pid", str(pid)).out
    top = answer.partition("top by self time (wall)\n")[2].splitlines()
    assert top[0].endswith(": render")
    assert names_the_cause(answer, "server")
    assert not any(line.endswith(": waits") for line in top)
    assert re.search(r";\s+([89]|\d\d)\s+slept\s+all\s+the\s+time", answer), answer  # wherever the line is broken
    account = found["accounting"]
    assert account["threads"][account["leading"]]["name"] == "MainThread"
    assert re.search(r"8 threads:\n(pid \d+ Thread-\d \(waits\) \(waiting\)\n){8} +waits ", where)


@jax_jobs.needs_jax
def test_a_step_that_is_compiled_each_time(host: Host) -> None:
    with trouble(host, str(jax_jobs.JAX_PYTHON), str(LABELS["recompiling"].file)) as pid:
        until(lambda: "jax" in sources_of(host, pid), "its profiler server is found")
        answer = until(
            lambda: leads_to_the_compiler(host, start(host, pid, "5s")), "the compiler is named", CAPTURES_SECONDS
        )
        assert "--samples" not in answer, "nothing of it can be had from this source"


def leads_to_the_compiler(host: Host, answer: str) -> str:
    """The answer that says so, and whose `next:` shows it; empty: on a busy host few steps are compiled in a window,
    and one that takes longer than the window is not in it.
    """
    shows = re.search(r"backend_compile_and_load|\(jit_train_step\)", following(host, answer).out)
    return answer if shows and names_the_cause(answer, "recompiling") else ""

"""Questions to a process that is stuck within execve: a real one, held by a file system that does not answer."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from profd import _host
from profd.errors import Exhausted, NotFound
from profd.limits import (
    PROC_LATE_SECONDS,
    PROC_LATE_SECONDS_PER_UID,
    PROC_STARVED_SECONDS,
    PROC_STUCK_SECONDS,
    PROC_WAIT_LOOP_SECONDS,
    PROC_WAIT_SECONDS,
    PROC_WAIT_SECONDS_ALL,
    PROC_WAIT_SECONDS_MIN,
    PROC_WAIT_SECONDS_PER_UID,
)
from profd.targets import guarded, procfs
from profd.targets.guarded import Operation, Patience
from profd.targets.identity import Accepted, Standing
from profd.targets.process import ProcessId
from profd.targets.starts import Starts
from profd.targets.table import ProcessTable

from tests.support import readable
from tests.support.descriptors import nothing_left_open
from tests.support.stuck_exec import StuckProcess, stuck_process, why_not
from tests.support.waiting import until

needs_fuse = pytest.mark.skipif(bool(why_not()), reason=why_not())
USER = 61234
BYTES = 4 << 20  # a millisecond or more, which is what a look waits at least
LOOKS = 300
FULL = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
os.write(1, b"x")
while True:
    pass
"""
KTHREADD, GONE = 2, (1 << 22) + 1


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing remembered of the test before."""
    monkeypatch.setattr(guarded, "patience", Patience())


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[StuckProcess]:
    with stuck_process(tmp_path / "mount", USER) as process:
        yield process


@contextmanager
def running(count: int) -> Iterator[list[int]]:
    """Pids of processes that wait, lowest first."""
    with ExitStack() as ends:
        started = []
        for _ in range(count):
            process = ends.enter_context(subprocess.Popen(["cat"], stdin=subprocess.PIPE))
            assert process.stdin is not None
            ends.callback(process.stdin.close)
            started.append(process.pid)
        yield sorted(started)


@needs_fuse
@pytest.mark.parametrize("name", ["stat", "environ", "maps"])
def test_files_of_a_stuck_process_are_given_up(stuck: StuckProcess, name: str) -> None:
    with nothing_left_open():
        assert procfs.read(f"/proc/{stuck.pid}/{name}", 4096) is None
        assert procfs.unanswering(stuck.pid)


@needs_fuse
def test_links_of_a_stuck_process_are_given_up(stuck: StuckProcess) -> None:
    with nothing_left_open():
        assert procfs.link(f"/proc/{stuck.pid}/root") == ""
        assert procfs.unanswering(stuck.pid)


@needs_fuse
def test_opening_in_a_stuck_process_is_given_up(stuck: StuckProcess) -> None:
    with nothing_left_open(), pytest.raises(TimeoutError):
        procfs.opened(f"/proc/{stuck.pid}/pagemap", os.O_RDONLY)


@needs_fuse
def test_descriptors_of_a_stuck_process_are_given_up(stuck: StuckProcess) -> None:
    with nothing_left_open():
        assert list(procfs.links(f"/proc/{stuck.pid}/fd", 100)) == []


@needs_fuse
def test_what_a_stuck_process_answers_before_is_kept(stuck: StuckProcess) -> None:
    folder = f"/proc/{stuck.pid}"
    status, stat = guarded.ask(
        stuck.pid, [(Operation.RECORD, f"{folder}/status", 4096), (Operation.RECORD, f"{folder}/stat", 4096)]
    )
    assert isinstance(status, bytes)
    assert b"Uid" in status
    assert isinstance(stat, int)


@needs_fuse
def test_a_descriptor_that_was_opened_before_it_was_given_up_is_closed(stuck: StuckProcess) -> None:
    with nothing_left_open():
        requests = [
            (int(Operation.OPEN), "/proc/self/root", os.O_PATH),
            (int(Operation.RECORD), f"/proc/{stuck.pid}/stat", 4096),
        ]
        outcome, answers, *_ = _host.ask(requests, 0.05)
        assert outcome == 1
        assert all(isinstance(answer, int) and answer < 0 for answer in answers)


@needs_fuse
def test_status_is_told_at_once_and_the_process_stays_in_good_standing(stuck: StuckProcess) -> None:
    status = procfs.status_of(stuck.pid)
    assert status is not None
    assert status.uid == USER
    assert procfs.has_memory(stuck.pid)
    assert not procfs.unanswering(stuck.pid)


@needs_fuse
def test_an_accepted_process_that_is_stuck_within_exec_has_changed(tmp_path: Path) -> None:
    process = StuckProcess(tmp_path / "mount", USER)
    try:
        stat = procfs.stat_of(process.pid)
        assert stat is not None
        accepted = Accepted(ProcessId(process.pid, stat.start_ticks), USER)
        assert accepted.hold() == ""
        unheld = Accepted(accepted.process, USER)
        assert accepted.same
        process.hang()
        # By its memory alone, so that nobody waited.
        assert accepted.standing() is Standing.CHANGED
        assert not procfs.unanswering(process.pid)
        assert unheld.standing() is Standing.CHANGED
        assert "does not answer" in unheld.moved_on()
        accepted.close()
        unheld.close()
    finally:
        process.close()


@needs_fuse
def test_one_that_is_accepted_while_it_is_stuck_is_not_the_same(stuck: StuckProcess) -> None:
    accepted = Accepted(ProcessId(stuck.pid, 1), USER)
    assert accepted.standing() is Standing.CHANGED
    accepted.close()


@needs_fuse
def test_a_start_time_that_was_told_before_is_known_while_it_is_stuck(tmp_path: Path) -> None:
    process, starts = StuckProcess(tmp_path / "mount", USER), Starts()
    try:
        first = starts.of(process.pid)
        assert first
        process.hang()
        assert starts.known(process.pid) == first
        assert Starts().of(process.pid) == 0
    finally:
        process.close()
    assert starts.known(process.pid) == 0


@needs_fuse
def test_one_that_does_not_answer_has_not_ended(tmp_path: Path) -> None:
    process, table = StuckProcess(tmp_path / "mount", USER), ProcessTable()
    try:
        stat = procfs.stat_of(process.pid)
        assert stat is not None
        this = ProcessId(process.pid, stat.start_ticks)
        process.hang()
        assert table.alive(this)
        with pytest.raises(Exhausted, match="does not answer"):  # whether it is this one cannot be known
            table.pidfd(this)
    finally:
        process.close()
    assert not table.alive(this)
    with pytest.raises(NotFound):
        table.pidfd(this)


@needs_fuse
def test_the_table_shows_all_others(stuck: StuckProcess) -> None:
    pids = {process.id.pid for process in ProcessTable().snapshot()}
    assert os.getpid() in pids
    assert stuck.pid not in pids


@needs_fuse
def test_those_beside_a_stuck_process_answer_all_the_same(stuck: StuckProcess) -> None:
    with running(6) as others:
        asked = [*others[:3], stuck.pid, *others[3:]]
        assert [pid for pid, _, _ in procfs.looks(asked)] == others
    assert guarded.patience.silent() == [stuck.pid]


def test_looks_at_many_processes_share_their_children(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    ask = _host.ask
    monkeypatch.setattr(_host, "ask", lambda requests, *how: made.append(len(requests)) or ask(requests, *how))
    with running(9) as others:
        assert [pid for pid, _, _ in procfs.looks([*others, GONE])] == others
    assert made[0] == 16  # where cores are busy some of them may be asked once more, alone


def test_those_of_a_user_that_answers_late_share_their_children_with_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each child wants a core, and where users keep these busy that is most of what a look takes."""
    made = []
    ask = _host.ask

    def noted(requests: list[tuple[int, str, int]], seconds: float, *how: Any) -> Any:
        made.append((len(requests), seconds))
        return ask(requests, seconds, *how)

    monkeypatch.setattr(_host, "ask", noted)
    guarded.patience.late(USER, PROC_LATE_SECONDS_PER_UID)
    monkeypatch.setattr(guarded, "user_of", lambda pid: USER if pid in others[1:] else os.getuid())
    with running(6) as others:
        list(procfs.looks(others))
    assert (10, PROC_LATE_SECONDS) in made  # and the first, whose user answers in time, apart from them


def test_one_that_did_not_answer_lately_is_not_asked_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    ask = _host.ask
    monkeypatch.setattr(_host, "ask", lambda requests, *how: made.extend(requests) or ask(requests, *how))
    with running(3) as others:
        guarded.patience.waited(others[1], os.getuid(), 0.0, PROC_WAIT_SECONDS)
        assert [pid for pid, _, _ in procfs.looks(others)] == [others[0], others[2]]
    assert not [path for _, path, _ in made if f"/{others[1]}/" in path]


def test_the_kernels_own_are_known_without_a_look_at_each() -> None:
    kernels, shown = procfs.kernels_own(), {process.id.pid for process in ProcessTable().snapshot()}
    assert os.getpid() not in kernels
    assert os.getpid() in shown
    assert not kernels & shown
    found = procfs.stat_of(KTHREADD)
    if found is None or not found.kernel_thread:
        assert kernels == set()
        return
    assert len(kernels) > 1
    looked_at = [(pid, stat) for pid, stat, _ in procfs.looks(kernels)]
    assert all(pid == KTHREADD or stat.ppid == KTHREADD for pid, stat in looked_at)


def test_of_our_own_everything_is_answered() -> None:
    me = f"/proc/{os.getpid()}"
    assert procfs.link(f"{me}/exe") == os.readlink(f"{me}/exe")
    assert procfs.read(f"{me}/environ", 1 << 20) == Path(me, "environ").read_bytes()
    assert (procfs.read(f"{me}/maps", 1 << 20) or b"").count(b"\n") > 10
    assert procfs.read(f"{me}/no_such_file", 10) is None
    ours = dict(procfs.links(f"{me}/fd", 4096))
    assert ours["0"] == os.readlink(f"{me}/fd/0")
    opened = procfs.opened(f"{me}/root", os.O_PATH)
    assert os.path.samestat(os.fstat(opened), os.stat("/"))
    os.close(opened)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_process_that_did_not_answer_is_left_alone_for_a_while() -> None:
    clock = Clock()
    patience = Patience(clock)
    assert patience.allowed(1, USER, PROC_WAIT_SECONDS) == PROC_WAIT_SECONDS
    patience.waited(1, USER, PROC_WAIT_SECONDS, PROC_WAIT_SECONDS)
    assert patience.allowed(1, USER, PROC_WAIT_SECONDS) == 0
    assert patience.allowed(2, USER, PROC_WAIT_SECONDS) > 0
    clock.now += PROC_STUCK_SECONDS
    assert patience.allowed(1, USER, PROC_WAIT_SECONDS) == PROC_WAIT_SECONDS


def test_a_short_look_that_was_missed_keeps_no_longer_one_from_being_made() -> None:
    patience = Patience(Clock())
    patience.waited(1, USER, PROC_WAIT_LOOP_SECONDS, PROC_WAIT_LOOP_SECONDS)
    assert patience.stuck(1)
    assert patience.allowed(1, USER, PROC_WAIT_LOOP_SECONDS) == 0
    assert patience.allowed(1, USER, PROC_WAIT_SECONDS) == PROC_WAIT_SECONDS
    # Where the longer one is missed, too, a later short one makes it no younger.
    patience.waited(1, USER, PROC_WAIT_SECONDS, PROC_WAIT_SECONDS)
    patience.waited(1, USER, PROC_WAIT_LOOP_SECONDS, PROC_WAIT_LOOP_SECONDS)
    assert patience.allowed(1, USER, PROC_WAIT_SECONDS) == 0


def test_a_process_that_answers_a_longer_look_is_asked_by_all_again() -> None:
    mine = os.getpid()
    guarded.patience.waited(mine, USER, PROC_WAIT_LOOP_SECONDS, PROC_WAIT_LOOP_SECONDS)
    assert procfs.unanswering(mine)
    assert procfs.stat_of(mine) is not None
    assert not procfs.unanswering(mine)


def test_those_that_did_not_answer_are_counted_by_their_users() -> None:
    mine, uid = os.getpid(), os.getuid()
    before = procfs.silent_of(None), procfs.silent_of({uid})
    guarded.patience.waited(mine, uid, 0.0, PROC_WAIT_LOOP_SECONDS)
    guarded.patience.waited(1 << 22, uid, 0.0, PROC_WAIT_LOOP_SECONDS)  # no process has that pid
    assert (procfs.silent_of(None), procfs.silent_of({uid})) == (before[0] + 1, before[1] + 1)
    assert procfs.silent_of({uid + 1}) == 0
    guarded.patience.answered(mine)
    assert (procfs.silent_of(None), procfs.silent_of({uid})) == before


def test_a_busy_host_is_no_fault_of_a_process_or_its_user() -> None:
    clock = Clock()
    patience = Patience(clock)
    patience.starved(1, USER, PROC_STARVED_SECONDS, PROC_WAIT_SECONDS)
    assert patience.allowed(1, USER, PROC_WAIT_SECONDS) == PROC_WAIT_SECONDS
    patience.starved(1, USER, PROC_WAIT_SECONDS, PROC_WAIT_SECONDS)  # more than is nobody's
    assert patience.allowed(1, USER, PROC_WAIT_SECONDS) == 0
    clock.now += PROC_STUCK_SECONDS
    patience.starved(1, USER, PROC_STARVED_SECONDS, PROC_WAIT_SECONDS)
    assert patience.allowed(1, USER, PROC_WAIT_SECONDS) == PROC_WAIT_SECONDS


def test_one_that_could_not_be_asked_is_not_said_to_be_gone() -> None:
    """It is told as one that does not answer, until it does, or for a while."""
    clock = Clock()
    patience = Patience(clock)
    for pid in (1, 2):
        patience.starved(pid, USER, PROC_STARVED_SECONDS / 4, PROC_WAIT_SECONDS)
    assert (patience.stuck(1), patience.silent()) == (True, [1, 2])
    patience.answered(1)
    assert (patience.stuck(1), patience.silent()) == (False, [2])
    clock.now += PROC_STUCK_SECONDS
    assert patience.silent() == []


def no_core(requests: list[tuple[int, str, int]], *_: object) -> tuple[int, list[int], int, int]:
    """What `ask` returns where no child gets a core in time."""
    return guarded._STARVED, [-errno.EINPROGRESS] * len(requests), 0, 0


def test_a_look_without_a_core_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a host so busy that the child which asks gets no core THEN no process has ended by that."""
    monkeypatch.setattr(_host, "ask", no_core)
    with running(1) as (pid,):
        found = procfs.parse_stat(Path(f"/proc/{pid}/stat").read_bytes())
        assert found is not None
        this = ProcessId(pid, found.start_ticks)
        assert ProcessTable().alive(this)
        with pytest.raises(Exhausted, match=r"does not answer.*or the host is very busy"):
            ProcessTable().pidfd(this)
        assert procfs.silent_of({os.getuid()}) == 1


def test_a_process_that_answers_beside_others_is_silent_no_more() -> None:
    with running(3) as others:
        for pid in others:
            guarded.patience.starved(pid, os.getuid(), 0.0, PROC_WAIT_SECONDS)
        assert [pid for pid, _, _ in procfs.looks(others)] == others
        assert not any(map(procfs.unanswering, others))


@pytest.fixture
def full_core() -> Iterator[int]:
    """One where a process of a real-time class runs all the time: others get a twentieth of it."""
    core = max(os.sched_getaffinity(0))
    words = [sys.executable, "-c", FULL, str(core)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as burner:
        assert burner.stdout is not None
        if burner.stdout.read(1) != b"x":
            pytest.skip("real-time classes are refused here")
        yield core
        burner.kill()


def test_a_child_that_gets_no_core_is_told_from_a_process_that_does_not_answer(full_core: int) -> None:
    """The asking thread is above that process, and its children are of the usual class."""

    def ask() -> list[int]:
        os.sched_setaffinity(0, {full_core})
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(2))
        found: list[int] = []
        while len(found) < LOOKS and guarded._STARVED not in found:
            found.append(_host.ask([(int(Operation.RECORD), "/proc/self/stat", 4096)], PROC_WAIT_SECONDS_MIN)[0])
        return found

    with ThreadPoolExecutor(1) as thread:
        outcomes = thread.submit(ask).result()
    assert outcomes[-1] == guarded._STARVED
    assert {*outcomes} <= {guarded._ANSWERED, guarded._STARVED}


def test_answers_that_are_whole_when_time_is_up_are_answers(tmp_path: Path) -> None:
    """GIVEN files that take about as long as a look may wait for THEN what was read whole has not been given up."""
    file = tmp_path / "file"
    file.write_bytes(bytes(BYTES))
    asked = [(int(Operation.READ), str(file), BYTES)]
    for _ in range(LOOKS):
        outcome, answers, *_ = _host.ask(asked, 0.0)
        whole = any(isinstance(answer, bytes) for answer in answers)  # none of a child that is not dead yet
        assert (outcome == 0) == whole, "it was read, and its reader taken for one that waits"


def test_a_thousand_of_a_user_cost_what_one_user_may() -> None:
    patience, spent = Patience(Clock()), 0.0
    for pid in range(1000):
        seconds = patience.allowed(pid, USER, PROC_WAIT_SECONDS)
        if seconds:
            patience.waited(pid, USER, seconds, PROC_WAIT_SECONDS)
            spent += seconds
    assert spent <= PROC_WAIT_SECONDS_PER_UID + PROC_WAIT_SECONDS_MIN
    assert patience.allowed(5000, USER + 1, PROC_WAIT_SECONDS) == PROC_WAIT_SECONDS


def test_a_user_whose_processes_answer_late_has_them_waited_for_shortly() -> None:
    """They answer each time, so that none is left alone: a hundred that execute other programs all the time would keep
    each list for as long as these take.
    """
    clock = Clock()
    patience = Patience(clock)
    patience.late(USER, PROC_LATE_SECONDS_PER_UID / 2)
    assert patience.allowed(1, USER, PROC_WAIT_SECONDS) == PROC_WAIT_SECONDS
    patience.late(USER, PROC_LATE_SECONDS_PER_UID / 2)
    assert patience.allowed(1, USER, PROC_WAIT_SECONDS) == PROC_LATE_SECONDS
    assert not patience.spent(USER)
    # AND neither other users nor a look at what is recorded
    assert patience.allowed(2, USER + 1, PROC_WAIT_SECONDS) == PROC_WAIT_SECONDS
    assert patience.allowed(1, USER, PROC_WAIT_SECONDS, patient=True) == PROC_WAIT_SECONDS
    clock.now += PROC_STUCK_SECONDS
    assert patience.allowed(1, USER, PROC_WAIT_SECONDS) == PROC_WAIT_SECONDS


@needs_fuse
def test_what_kept_a_look_waiting_is_told(stuck: StuckProcess) -> None:
    """And which of several processes: its user pays."""
    asked = [(int(Operation.RECORD), f"/proc/{pid}/stat", 4096) for pid in (os.getpid(), stuck.pid)]

    def waited() -> float:  # none where the child had no core
        *_, seconds, longest = _host.ask(asked, PROC_WAIT_LOOP_SECONDS)
        return seconds if longest == 1 else 0.0

    until(lambda: waited() > 0, "the child waits, and has begun")


@needs_fuse
def test_looks_at_several_are_on_account_of_whoever_kept_them(stuck: StuckProcess) -> None:
    def late() -> set[int]:
        guarded._answered_together([(pid, [(Operation.RECORD, f"/proc/{pid}/stat", 4096)]) for pid in others])
        return set(guarded.patience._late)

    with running(1) as [other]:
        others = [other, stuck.pid]
        until(lambda: late() == {USER}, "it is held against its user")


def test_a_process_that_nobody_waits_for_is_not_told_as_gone() -> None:
    """GIVEN a user of whom others have not answered for too long THEN no process of theirs reads as one that ended."""
    assert not procfs.unanswering(os.getpid())
    guarded.patience.waited(1 << 30, os.getuid(), PROC_WAIT_SECONDS_PER_UID, PROC_WAIT_SECONDS)
    assert procfs.unanswering(os.getpid())
    assert not procfs.unanswering((1 << 22) + 1)  # no pid is as large


def test_many_users_shorten_the_wait_and_nobody_is_left_out() -> None:
    patience, spent = Patience(Clock()), 0.0
    for uid in range(1000):
        seconds = patience.allowed(uid, uid, PROC_WAIT_SECONDS)
        assert seconds
        patience.waited(uid, uid, seconds, PROC_WAIT_SECONDS)
        spent += seconds
    assert spent <= PROC_WAIT_SECONDS_ALL + PROC_WAIT_SECONDS + 1000 * PROC_WAIT_SECONDS_MIN


BLIND = """
import os, resource, sys
from profd.capture.planner import missing
from profd.errors import Exhausted
from profd.targets import procfs
from profd.targets.process import ProcessId
from profd.targets.starts import starts
from profd.targets.table import ProcessTable

other = int(sys.argv[1])
table = ProcessTable()
known = ProcessId(other, starts.of(other))
assert table.get(other) is not None
free = resource.getrlimit(resource.RLIMIT_NPROC)
resource.setrlimit(resource.RLIMIT_NPROC, (1, free[1]))  # as TasksMax: no child can be made
for look in (table.snapshot, lambda: table.get(other)):
    try:
        look()
    except Exhausted as error:
        assert "no child process can be made" in str(error) and "TasksMax" in str(error), error
    else:
        raise SystemExit("it said what it cannot know")
assert "profd cannot look" in missing(other), missing(other)
assert table.alive(known)  # what is known needs no child
assert procfs.unanswering(other)
resource.setrlimit(resource.RLIMIT_NPROC, free)
assert table.get(other) is not None
assert procfs.blind() == "" and missing(1 << 22) == f"there is no process with pid {1 << 22}"
print("done")
"""


@pytest.mark.skipif(bool(readable.why_not()), reason=readable.why_not())
def test_a_child_that_cannot_be_made_is_no_word_of_the_process() -> None:
    become = f"import os, sys; os.setgroups([]); os.setresgid(*3 * [{USER}]); os.setresuid(*3 * [{USER}]); "
    command = readable.command(sys.executable, "-P", "-c", become + "exec(sys.stdin.read())", str(os.getpid()))
    done = subprocess.run(command, input=BLIND, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["done"], done.stderr

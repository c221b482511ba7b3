"""One capture of one process: hand out a config, wait for the window and the file, take it.

libkineto sends no message when it is done, refuses or fails. Four signs stand in: its `.tmp` file (it accepted), the
rename (the file is whole), the mask of its polls (it is tracing, or no longer), and its death.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Final

from profd.fairness.shares import Holder
from profd.fairness.threads import in_thread
from profd.fairness.to_the_end import to_the_end
from profd.model.capture import Options, Phase, RawFile, Reason, Recording, State
from profd.sources.base import Session
from profd.sources.kineto import failures, planning
from profd.sources.kineto.config_text import KinetoConfig, from_options
from profd.sources.kineto.leftovers import Leftover, Leftovers, remove_both
from profd.sources.kineto.lifetime import Lifetime
from profd.sources.kineto.planning import LEAD_NS, SECOND
from profd.sources.kineto.progress import Progress, Window
from profd.sources.kineto.registry import DEFAULT_PERIOD_NS, HandOut, Pending, Registered
from profd.sources.kineto.salvage import TRACE, forget, note
from profd.sources.kineto.socket_thread import SocketThread
from profd.sources.kineto.trace_file import Edges, edges, optimizer_steps
from profd.targets.errands.directory import Directory, SilentDirectory
from profd.targets.identity import Accepted, Standing
from profd.targets.pickup import NotTaken, Refusal, Taken
from profd.targets.process import Process

_TICK: Final = 0.1
_TICK_WHEN_DUE: Final = 0.025  # after the window's end, when the file may come at any moment
_DUE_NS: Final = 5 * SECOND
_SLACK_NS: Final = 1_500_000_000  # libkineto's run loop looks once a second
_START_MARGIN_NS: Final = SECOND  # a config with a start time must be read before it
_LATE_NS: Final = 3 * SECOND
_IDLE_POLLS: Final = 2
_BUSY_POLLS: Final = 3


class Ending(Enum):
    """How waiting for a file came to an end."""

    FILE = auto()
    ENDED = auto()  # the process, without a file
    IDLE = auto()  # it says that it is not tracing, and there is no file
    DEADLINE = auto()  # or silence: it is stopped, or hangs at its exit


@dataclass(slots=True)
class Attempt:
    """One config and what came of it."""

    token: str
    name: str
    config: KinetoConfig
    submitted_ns: int
    period_ns: int
    was_active: bool = False  # a poll said that it is tracing
    saw_tmp: bool = False
    busy_late: bool = False  # it said so well after its window, as with a profiler that is not ours
    held_up: bool = False  # its polls failed to come for a while

    @property
    def tmp(self) -> str:
        """The file that libkineto writes until the trace is whole."""
        return f"{self.name}.tmp"


class KinetoRecorder:
    """Runs once. Everything a target does ends as a Recording."""

    def __init__(
        self,
        process: Process,
        options: Options,
        session: Session,
        polls: SocketThread,
        directory: Directory,
        lifetime: Lifetime,
        accepted: Accepted,
        leftovers: Leftovers,
    ) -> None:
        self._process = process
        self._holder = Holder.of_user(process.uid)
        self._options = options
        self._session = session
        self._polls = polls
        self._directory = directory
        self._lifetime = lifetime
        self._accepted = accepted
        self._leftovers = leftovers
        self._warnings: list[str] = planning.notes(options)
        self._start_at_ns = options.start_at_ns
        self._deadline_ns = time.monotonic_ns() + planning.deadline_ns(options, self._period_ns(), time.time())
        self.name = ""  # of the file that is wanted now
        self.rate: planning.EarlierTrace | None = None  # what a whole trace has shown
        self.over = False  # the process has taken no config, or is done with the one that it took

    async def run(self) -> Recording:
        """Up to three windows: libkineto misses its own when the process is held up."""
        for number in range(1, planning.ATTEMPTS_MAX + 1):
            try:
                recording = await self._attempt(last=number == planning.ATTEMPTS_MAX)
            except SilentDirectory as error:  # what it was asked for stays among the leftovers
                recording = failures.refused(error.refused)
            if recording is not None:
                recording.warnings[:0] = self._warnings
                if self._process.torch_version:
                    recording.versions["torch"] = self._process.torch_version
                return recording
            self._warnings.append(f"kineto missed window {number}; asked again")
        raise AssertionError("the last attempt always ends")

    async def _attempt(self, last: bool) -> Recording | None:
        """One window. None: nothing was recorded, and there is time for another."""
        attempt = self._prepare()
        self.name = attempt.name
        try:
            await in_thread(self._holder, self._leftovers.add, self._leftover(attempt))
        except OSError as error:
            return failures.failed(Reason.SOURCE_FAILED, f"the state directory is unwritable: {error.strerror}")
        handed = await self._hand_out(attempt)
        self.over = isinstance(handed, Recording)
        if isinstance(handed, Recording):
            await in_thread(self._holder, self._leftovers.done, attempt.name)
            return handed
        window = self._window(attempt, handed)
        ending = await self._await_file(attempt, window)
        self.over = ending is not Ending.DEADLINE
        again = not last and time.monotonic_ns() + self._attempt_ns() < self._deadline_ns
        again = again and not self._session.stop.is_set()
        if ending is Ending.FILE:
            return await self._take(attempt, window, again)
        return await self._without_file(attempt, window, ending, again)

    def _prepare(self) -> Attempt:
        token = secrets.token_hex(16)
        pid = self._process.namespace_pids[-1] if self._process.namespace_pids else self._process.id.pid
        start_ms = 0
        if self._start_at_ns is not None and not self._options.iterations:
            if self._start_at_ns > time.time_ns() + _START_MARGIN_NS:
                start_ms = -(-self._start_at_ns // 1_000_000)
            else:
                self._start_at_ns = None
                self._warnings.append("the common start time had passed before kineto could be told; started late")
        folder = self._directory.path.rstrip("/")
        config = from_options(self._options, f"{folder}/profd-{token}.json", token, start_ms)
        now = time.monotonic_ns()
        return Attempt(token, f"profd-{token}_{pid}.json", config, now, self._period_ns())

    async def _hand_out(self, attempt: Attempt) -> HandOut | Recording:
        """Wait for the poll that takes the config, or for what makes waiting useless."""
        loop = asyncio.get_running_loop()
        taken: asyncio.Future[HandOut] = loop.create_future()

        def resolve(handed: HandOut) -> None:
            if not taken.done():
                taken.set_result(handed)

        def tell(handed: HandOut) -> None:  # on the thread that answers polls
            with contextlib.suppress(RuntimeError):  # the loop is gone, and with it whoever waits
                loop.call_soon_threadsafe(resolve, handed)

        process = self._process.id
        expires = None
        if attempt.config.start_time_ms:
            ahead = attempt.config.start_time_ms * 1_000_000 - time.time_ns() - _START_MARGIN_NS
            expires = time.monotonic_ns() + ahead
        pending = Pending(attempt.token, attempt.config.text(), tell, expires, lambda: self._accepted.same)
        if not self._polls.submit(process, pending):
            return failures.busy("another request waits for the process's next poll")
        self._session.report(State.ARMED, self._waiting())
        before = self._known_polls()
        try:
            while True:
                await asyncio.wait({taken}, timeout=_TICK)
                if taken.done():
                    return taken.result()
                useless = self._useless(before, expires)
                if useless is not None and self._polls.withdraw(process, attempt.token):
                    if isinstance(useless, Recording):
                        return useless
                    return await self._hand_out(self._without_start(attempt))
        finally:
            self._polls.withdraw(process, attempt.token)

    def _useless(self, polls_before: int, expires_ns: int | None) -> Recording | bool | None:
        """Why it makes no sense to wait on: a Recording; True: the start time cannot be kept; None: wait."""
        now = time.monotonic_ns()
        known = self._polls.get(self._process.id)
        if self._lifetime.ended:
            return failures.failed(Reason.TARGET_ENDED, "the process ended before it read the request")
        if not self._accepted.same and not self._accepted.silent:  # a silent one is asked again at the next tick
            return failures.failed(Reason.TARGET_ENDED, self._accepted.moved_on())
        if self._session.stop.is_set():
            return failures.cancelled()
        if known is None or known.silent(now):
            return failures.silent(known, now)
        if not known.takes_config and known.polls - polls_before >= _BUSY_POLLS:
            return failures.busy("a profiler is active in the process (torch.profiler in the job?)")
        if now >= self._deadline_ns:
            return failures.failed(Reason.TIMEOUT, "the process did not take the request in time")
        return True if expires_ns is not None and now >= expires_ns else None

    def _without_start(self, attempt: Attempt) -> Attempt:
        self._start_at_ns = None
        self._warnings.append("the process asked too late for the common start time; started on its own")
        output, token = attempt.config.output, attempt.token
        attempt.config = from_options(self._options, output, token)
        return attempt

    def _window(self, attempt: Attempt, handed: HandOut) -> Window:
        now = handed.at_ns
        late = self._period_ns() if handed.late else 0
        if self._options.iterations:
            return Window(now, now, None, now + late)
        start = now + LEAD_NS
        if attempt.config.start_time_ms:
            start = now + attempt.config.start_time_ms * 1_000_000 - time.time_ns()
        end = start + attempt.config.duration_ms * 1_000_000
        return Window(now, start, end, end + late + _SLACK_NS)

    async def _await_file(self, attempt: Attempt, window: Window) -> Ending:
        """Watch until the file is there, or it is clear that it will not come."""
        progress = Progress(self._session, window, self._options)
        idle_polls = 0
        last_poll_ns = window.handed_ns
        while True:
            now = time.monotonic_ns()
            attempt.saw_tmp = attempt.saw_tmp or await self._exists(attempt.tmp)
            progress.tell(now, attempt.saw_tmp)
            # A program that it has exec'd knows nothing of the window.
            changed = self._accepted.standing() is Standing.CHANGED and not self._accepted.silent
            ended, known = self._lifetime.ended or changed, self._polls.get(self._process.id)
            if known is not None and known.last_poll_ns > last_poll_ns:
                self._note(attempt, window, known, known.last_poll_ns - last_poll_ns)
                last_poll_ns = known.last_poll_ns
                over = last_poll_ns > window.idle_from_ns and self._has_begun(attempt)
                idle_polls = idle_polls + 1 if known.takes_config and over else 0
            # Looked at after the signs of an end: the file comes before them.
            if await self._exists(attempt.name):
                return Ending.FILE
            if ended:
                return Ending.ENDED
            if idle_polls >= _IDLE_POLLS:
                return Ending.IDLE
            silent = now > window.idle_from_ns and (known is None or known.silent(now))
            if silent or now >= self._deadline_ns:
                return Ending.DEADLINE
            due = window.end_ns is None or 0 <= now - window.end_ns < _DUE_NS
            await asyncio.sleep(_TICK_WHEN_DUE if due else _TICK)

    def _note(self, attempt: Attempt, window: Window, known: Registered, gap_ns: int) -> None:
        """A poll's word about a window that was handed out."""
        attempt.held_up = attempt.held_up or gap_ns > 2 * attempt.period_ns
        if not known.takes_config:
            attempt.was_active = True
            late = window.end_ns is not None and known.last_poll_ns > window.end_ns + _LATE_NS
            attempt.busy_late = attempt.busy_late or late

    def _has_begun(self, attempt: Attempt) -> bool:
        """Before iterations begin, the mask says idle too; a timed window is over when its time is."""
        return not self._options.iterations or attempt.was_active or attempt.saw_tmp

    async def _take(self, attempt: Attempt, window: Window, again: bool) -> Recording | None:
        """The file is whole: bring it into the journal and look at its edges."""
        self._session.report(State.DRAINING, "taking the trace over")
        began_ns = time.time_ns()
        taken = await self._bring(attempt.name, whole=True)
        if isinstance(taken, NotTaken):
            if taken.code is not Refusal.NO_ANSWER:  # what is refused is not swept either
                await in_thread(self._holder, self._leftovers.done, attempt.name)
            return failures.refused(taken)
        seen = await in_thread(self._holder, edges, taken.path)
        if seen.trace_id is not None and seen.trace_id != attempt.token:
            await in_thread(self._holder, forget, self._session.directory)
            return failures.failed(Reason.FILE_REFUSED, "the file holds another request's trace")
        if taken.cut:  # the rest is nowhere else
            await in_thread(self._holder, self._leftovers.done, attempt.name)
        else:
            await self._clear(attempt, taken)
        missed = self._missed(attempt, seen)
        if missed and seen.empty:
            await in_thread(self._holder, forget, self._session.directory)
            return None if again else failures.missed()
        recording = Recording(files=[RawFile(str(taken.path), "chrome")], start_ns=seen.start_ns, end_ns=seen.end_ns)
        recording.waterfall = self._waterfall(attempt, window, taken, seen, began_ns)
        recording.cost = planning.cost(self._options, seen.spans, seen.window_ns)
        if seen.window_ns:
            self.rate = planning.EarlierTrace(seen.spans / seen.window_ns, self._options.stacks)
        if missed:
            recording.warnings.append("kineto opened its window late: the process was held up")
        if seen.empty:
            recording.warnings.append("kineto recorded nothing: no operator ran in the window")
        if taken.cut:
            recording.reason = Reason.TRUNCATED
            recording.message = f"{taken.cut}; what was taken is kept, and the file stays where it is"
        elif not seen.complete:
            recording.reason = Reason.TRUNCATED
            recording.message = "the trace file has no end; what is readable is kept"
        if self._lifetime.ended:
            recording.warnings.append("the process ended right after it wrote the trace")
        await self._check_iterations(recording, taken.path)
        return recording

    async def _check_iterations(self, recording: Recording, path: Path) -> None:
        wanted = self._options.iterations
        if not wanted:
            return
        steps = await in_thread(self._holder, optimizer_steps, path, wanted)
        if steps < wanted:
            recording.not_honoured.append(
                f"iterations: {wanted} asked, {steps} optimizer steps recorded; kineto falls back to "
                f"{planning.window_ms(self._options)} ms where no step had run before"
            )

    async def _without_file(self, attempt: Attempt, window: Window, ending: Ending, again: bool) -> Recording | None:
        """No file came. Keep what can be read of the `.tmp`, and say what happened."""
        now = time.monotonic_ns()
        tmp = await self._directory.look(attempt.tmp)
        other = attempt.busy_late and not attempt.held_up
        if ending is Ending.IDLE and (tmp is None or not tmp.bytes) and again and not other:
            await self._clear(attempt, None)
            return None
        taken: Taken | NotTaken | None = None
        if tmp is not None and tmp.bytes and ending is not Ending.DEADLINE:
            taken = await self._bring(attempt.tmp, whole=False)
        if ending is not Ending.DEADLINE:
            # At the deadline libkineto may still write; the sweep looks again when it is idle.
            await self._clear(attempt, None)
        if ending is Ending.ENDED and self._accepted.standing() is Standing.CHANGED:
            recording = failures.failed(Reason.TARGET_ENDED, self._accepted.moved_on())
        elif ending is Ending.ENDED:
            recording = failures.ended(self._lifetime.process, window.start_ns <= now, attempt.saw_tmp)
        elif ending is Ending.IDLE:
            _, free = await self._directory.usable(())
            recording = failures.idle(self._directory.path, tmp, free, attempt.held_up)
        else:
            known = self._polls.get(self._process.id)
            recording = failures.deadline(known, now, attempt.was_active, bool(self._options.iterations))
        if isinstance(taken, Taken):
            recording.state = State.DRAINING
            recording.files = [RawFile(str(taken.path), "chrome")]
            recording.message += "; what was written until then is kept"
            recording.warnings += [taken.cut] if taken.cut else []
        return recording

    async def _bring(self, name: str, *, whole: bool) -> Taken | NotTaken:
        session = self._session
        taken: Taken | NotTaken | None = None
        path, limit = session.directory / TRACE, session.file_bytes_max
        try:
            with contextlib.suppress(OSError):  # then there is no room for the file either
                await in_thread(self._holder, partial(note, session.directory, whole=whole))
            taken = await self._directory.take(name, path, session.claim, limit)
        finally:
            if not isinstance(taken, Taken):
                await to_the_end(in_thread(self._holder, forget, session.directory))
        if whole and isinstance(taken, Taken) and taken.cut:
            await in_thread(self._holder, partial(note, session.directory, whole=False))
        return taken

    async def _clear(self, attempt: Attempt, taken: Taken | None) -> None:
        """Remove what is ours to remove in the target's directory."""
        if taken is not None:
            await self._directory.remove(attempt.name, taken.inode)
        else:
            await remove_both(self._directory, attempt.name)
        await in_thread(self._holder, self._leftovers.done, attempt.name)

    def _missed(self, attempt: Attempt, seen: Edges) -> bool:
        """The process was held up when its window came: less than half of it was recorded."""
        if self._options.iterations or seen.window_ns is None:
            return False
        return seen.window_ns < attempt.config.duration_ms * 500_000

    def _waterfall(self, attempt: Attempt, window: Window, taken: Taken, seen: Edges, began_ns: int) -> list[Phase]:
        """Where the time went. The window is libkineto's own account, the writing ends with the rename."""
        wall_offset = time.time_ns() - time.monotonic_ns()
        start = seen.start_ns if seen.start_ns is not None else window.start_ns + wall_offset
        end = seen.end_ns
        if end is None:
            end = taken.changed_ns if window.end_ns is None else window.end_ns + wall_offset
        marks = (
            ("poll wait", attempt.submitted_ns + wall_offset),
            ("lead", window.handed_ns + wall_offset),
            ("window", start),
            ("writing", end),
            ("pick-up", min(taken.changed_ns, began_ns)),
            ("", time.time_ns()),
        )
        pairs = itertools.pairwise(marks)
        return [Phase(name, max(0, until - since)) for (name, since), (_, until) in pairs]

    async def _exists(self, name: str) -> bool:
        return await self._directory.look(name) is not None

    def _leftover(self, attempt: Attempt) -> Leftover:
        process = self._process
        folder = self._directory.path
        return Leftover(process.id.pid, process.id.start_ticks, process.uid, folder, attempt.name, time.time())

    def _known(self) -> Registered | None:
        return self._polls.get(self._process.id)

    def _known_polls(self) -> int:
        known = self._known()
        return known.polls if known else 0

    def _period_ns(self) -> int:
        known = self._known()
        return known.expected_period_ns if known else DEFAULT_PERIOD_NS

    def _attempt_ns(self) -> int:
        return planning.attempt_ns(self._options, self._period_ns())

    def _waiting(self) -> str:
        known = self._known()
        if known is None or known.period_ns is None:
            return "waiting for poll (≤ 5 s)"
        seconds = known.period_ns / SECOND
        return f"waiting for poll (≤ {seconds:.0f} s; period seen {seconds:.1f} s)"

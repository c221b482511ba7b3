"""What a process of ours weighs on a core, beside the threads of a job.

Where no cgroup shares out the processor, Linux does so between sessions (`autogroup`, sched(7)): a nice value counts
only within a session, and each session has the same weight. A job's is spread over all cores that it uses. That of a
process which left the daemon's session stands on one, so that a nice value alone changes nothing: there it weighs as
much as all of a job. So a session that a process of ours leads has a nice value, too.
"""

from __future__ import annotations

import os

NICE_MAX = 19
_HALF = 3  # steps of nice: each is a factor of 1.25 (sched(7))
_BYTES_MAX = 64


def give_way(nice: int) -> None:
    """Raise our nice value by so much (>= 0: nobody refuses that), and that of the session where we lead one."""
    os.nice(nice)
    weigh_as_a_thread(0, nice)


def weigh_as_a_thread(pid: int, nice: int = 0) -> None:
    """Let the session that `pid` leads weigh, on a core, what a thread of this nice value does in a job on all cores.

    0: our own. Does nothing where another process leads it, for that session is others', too. Where we may not, or may
    not yet (the kernel takes ten such changes a second of those without CAP_SYS_ADMIN), the session stays as it is.
    """
    try:
        file = led_session(pid)
        if file is None:
            return
        try:
            wanted = session_nice(nice, os.cpu_count() or 1)
            if nice_of(file) < wanted:
                set_nice(file, wanted)
        finally:
            os.close(file)
    except (OSError, ValueError):  # no `contextlib`: a relay imports little
        pass  # it has ended, or may not yet


def led_session(pid: int) -> int | None:
    """A descriptor of the session that `pid` (0: we) leads, for `nice_of` and `set_nice`; the caller closes it.

    None where another process leads it, this kernel has no such groups, or we may not. It never becomes another
    session's: once the process has ended, both functions raise OSError.
    """
    try:
        if os.getsid(pid) != (pid or os.getpid()):
            return None
        return os.open(f"/proc/{pid or 'self'}/autogroup", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None


def nice_of(session: int) -> int:
    """The nice value of this session. Raises OSError, and ValueError where it is in no group."""
    return int(os.pread(session, _BYTES_MAX, 0).rpartition(b" ")[2])  # "/autogroup-123 nice 0"


def set_nice(session: int, nice: int) -> None:
    """Give this session a nice value. Raises BlockingIOError where the kernel takes none before 0.1 s, and OSError."""
    os.write(session, b"%d" % min(nice, NICE_MAX))  # pwrite: ESPIPE


def session_nice(nice: int, cores: int) -> int:
    """The nice value of a session on one core that weighs as a thread does in a session on so many."""
    return min(nice + _HALF * (cores - 1).bit_length(), NICE_MAX)

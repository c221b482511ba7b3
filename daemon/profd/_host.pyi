"""What the daemon asks of the kernel, where Python would wait or be too slow (native/host)."""

from collections.abc import Sequence
from typing import Protocol

class Shares:
    """Counts datagrams by process and by user, as the kernel names them, each second anew. Not thread-safe."""

    def __init__(self, *, of_process: int, of_user: int, processes: int, users: int) -> None:
        """`of_process`, `of_user`: datagrams a second; `processes`, `users`: so many are told apart in a second.

        Of processes after them only the user is counted; users after them share one part.
        """
    def beyond(self, pid: int, uid: int, now_ns: int) -> bool:
        """Count one more; whether it is one too many."""

class DatagramDrain:
    """Keeps the kernel's queue of datagram sockets empty, which holds few datagrams of all senders together.

    One thread is in `run`, another in `take`. What is beyond its sender's share is dropped, with no Python run for it.
    What is not waits here in a queue of bounded length; when that is full, whoever has most in it loses one. The
    sockets have SO_PASSCRED and SO_TIMESTAMPNS set.
    """

    def __init__(
        self,
        *,
        datagram_bytes: int,
        queued: int,
        of_process: int,
        of_user: int,
        processes: int,
        users: int,
        interrupts: bool = False,
    ) -> None:
        """`datagram_bytes`: one byte more than that is read of each; the rest as for `Shares`.

        `interrupts`: descriptors may come with datagrams (passed.py), and a socket that lingers among them makes who
        drops it wait: a timer's signal (SIGRTMAX - 2, which is handled and does nothing) ends that.
        """
    def run(self, sockets: list[int]) -> None:
        """Receive until `stop`. RuntimeError if a descriptor is no socket."""
    def take(self, about: int) -> list[tuple[int, bytes, int, int, int, int, bool, bool, bytes | str | None]]:
        """Wait for datagrams, and take so many or a few more: users in turn, and all of one sender at once.

        Each is the descriptor it came in at, its bytes, pid, uid and gid of the sender, when it was sent (Unix ns),
        whether descriptors came with it (they are closed), whether it was longer than what was read, and the
        address as Python's sockets give it. Zeros (uid and gid: 2**32 - 1) stand for what the kernel did not say.
        Empty once stopped.
        """
    def stop(self) -> None:
        """Let `run` and `take` return."""
    def changed(self) -> None:
        """A descriptor among those of `run` is another socket now."""
    def counts(self) -> dict[str, int]:
        """Datagrams dropped: `flood` beyond their sender's share, `backlog` because the queue was full.

        `waits`: how often what came with them was waited for, and was ended.
        """

class SenderFilter:
    """What the kernel runs before a socket's queue: it drops and counts there what senders send beyond their share.

    The sender is told that they were sent. What a blocked or refused sender tries again counts again.
    """

    def __init__(self, *, of_process: int, of_user: int, remembered: int, by_user: bool = True) -> None:
        """`of_process`, `of_user`: datagrams a second; `remembered`: of so many processes and users.

        `by_user` False: of processes alone. OSError, its filename the call that was refused: EPERM without CAP_BPF,
        EINVAL where the kernel has no such programs.
        """
    def attach(self, socket: int) -> None:
        """Have a socket's datagrams pass here. Needs no capability. Raises OSError."""
    def dropped(self) -> int:
        """Datagrams, of all its sockets."""
    @property
    def program(self) -> int:
        """The descriptor."""

def ask(
    requests: list[tuple[int, str, int]], seconds: float, owners: Sequence[int] = ()
) -> tuple[int, list[bytes | int], float, int]:
    """Have files, links and directories read by a process that is given up when it waits for longer than that.

    A request is (kind, path, limit): targets/guarded.py has the kinds. An answer is what was read, a descriptor, or
    -errno (-EINPROGRESS: it was not reached). `owners`: the uid, for each request, of the process that is asked about.
    First comes 0 (answered), 1 (given up), 2 (no process could be made), 3 (too many wait for one of these owners) or 4
    (given up, and it had no core); last the seconds that it waited for what it asked and for no core, 0 where it was
    quick, and the number of the request that took longest.
    """

def mapped_names(maps: bytes, names: Sequence[bytes], most: int) -> list[bytes]:
    """Paths in the text of /proc/PID/maps whose last part begins with one of `names`: each once, at most `most`.

    The GIL is free meanwhile.
    """

def json_members(text: bytes, most: int) -> dict[bytes, bytes]:
    """The members of the object that a JSON text is: names as they are written, values as their texts.

    What is in the values is not looked at, and the GIL is free meanwhile. ValueError, with the place, for a text that
    is no object or has more than `most` members.
    """

class _Rates(Protocol):
    """Of tokens: how many a second, and how many at once after a pause."""

    @property
    def streams(self) -> float: ...
    @property
    def streams_burst(self) -> float: ...
    @property
    def work(self) -> float: ...
    @property
    def work_burst(self) -> float: ...

class _Limits(Protocol):
    """See native/host/door.h."""

    @property
    def each(self) -> int: ...
    @property
    def host(self) -> int: ...
    @property
    def answered_each(self) -> int: ...
    @property
    def answered_host(self) -> int: ...
    @property
    def begin_seconds(self) -> float: ...
    @property
    def end_seconds(self) -> float: ...
    @property
    def user(self) -> _Rates: ...
    @property
    def all(self) -> _Rates: ...

class Door:
    """A thread that accepts connections for gRPC, counts them by user, and carries their bytes."""

    def __init__(self, server: str, limits: _Limits, user_refusal: bytes, host_refusal: bytes) -> None:
        """`server`: path of gRPC's socket. The others: header blocks of the answer to calls beyond a limit.

        Raises OSError, ValueError.
        """

    def listen(self, listener: int) -> None:
        """Accept on a copy of this listening socket from now on, and on none before. Raises OSError."""

    def refuse(self) -> None:
        """Accept no more; connections go on."""

    def who(self, connection: int) -> tuple[int, bool]:
        """The uid at the other end, by the kernel, and whether no limit holds for it. Raises OSError."""

    def set_admins(self, gid: int) -> None:
        """No limit holds for members of this group from now on; open connections stay as they are."""

    def keep_members(self, gid: int) -> None:
        """End the connections of whoever has not this group; root's, the daemon's user's and streamers' go on.

        Carried ones end in any case: nobody knows their groups any more.
        """

    def take(self, connection: int, uid: int, free: bool) -> None:
        """Carry a connection that was accepted elsewhere, or what stands for it; the descriptor is the door's then.

        Raises OSError: it is still the caller's.
        """

    def close(self, seconds: float) -> None:
        """Carry what is on its way for so long at most, then end every connection and the thread. Waits for it."""

    def counts(self) -> dict[str, int]:
        """Connections `open`, and since the beginning `refused`, `throttled`, `foreign`; `refused_uid` was the last."""

class PorterWords:
    """What the daemon says to a porter or a dropper, in any thread (native/host/porter_words.h)."""

    def __init__(self, control: int) -> None:
        """`control`: our end of its conversation, which the caller closes, after `end`."""

    def hand(self, word: str, *fds: int) -> None:
        """Say a word with at most two descriptors, whose copies here are then closed.

        Raises OSError: they are still the caller's.
        """

    def say(self, word: str) -> None:
        """Raises OSError."""

    def end(self) -> None:
        """Nothing more is said."""

class Droppers:
    """Have sockets closed, each by a process of its user's."""

    def use(self, uid: int, words: PorterWords | None) -> None:
        """Those of this user by this one from now on; None: by nobody."""

class Reception:
    """A thread that accepts connections, and closes those of who connects too often (native/host/reception.h)."""

    def __init__(
        self,
        *,
        per_second: float,
        burst: float,
        waiting: int,
        users: int,
        admins: int,
        streamers: int,
        refusal: bytes,
        droppers: Droppers | None,
    ) -> None:
        """Of one uid `per_second`, `burst` after a pause; so many wait to be taken; `users` are told apart.

        No limit for root, who runs the daemon, the group `admins` (2**32 - 1: none) and the uid `streamers`. `refusal`
        is sent to the others; `droppers` close them (None: the thread does). Raises OSError.
        """

    def set_admins(self, gid: int) -> None: ...
    def listen(self, listener: int) -> int:
        """Accept on this listening socket from now on, which does not block; the descriptor becomes the thread's.

        The one before is the caller's, to be closed as a connection is; -1: there was none.
        """

    def signal(self) -> int:
        """A descriptor that is readable when there is something to take, or something new in `counts`."""

    def take(self, most: int) -> list[tuple[int, int, int, int]]:
        """Those who came first: descriptor, pid, uid and gid."""

    def take_undropped(self) -> list[int]:
        """Connections that are to be closed, for whose user nobody does that now: the caller's from here on."""

    def counts(self) -> tuple[int, int]:
        """Refused since the beginning, and the uid of the last.

        The signal is off until there is more.
        """

    def close(self) -> list[int]:
        """End the thread. Descriptors that are left are the caller's, to be closed as connections are."""

class Line:
    """Carries what gRPC's client and a server say to each other, in a thread of its own; the server is not trusted."""

    def __init__(self, client: int, server: int, limits: object) -> None:
        """Between two connected sockets, of which it has copies. `limits`: sources/jax/line.py. Raises OSError."""

    @property
    def foreign(self) -> bool:
        """The server has sent what no server of gRPC does, and the line has ended by that."""

    def end(self) -> None:
        """Both are told that it has ended, and nothing passes any more. Safe to repeat."""

class FrameReader:
    """What the door makes of what a client sends."""

    def feed(self, piece: bytes) -> list[tuple[int, int, int, int]]:
        """Frames whose header ends in this piece: length, type, flags, stream. Raises ValueError: it is no HTTP/2."""

    @property
    def most_fields(self) -> int:
        """Fields of the header block that has had the most."""

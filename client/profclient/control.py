"""A token from a daemon's control socket; the daemon gets the caller's identity from the kernel. Light."""

from __future__ import annotations

import _socket as socket  # `socket` adds names of constants, which take 3 ms, and a relay is started for each host
import errno
import os
import struct
import time

from profclient.errors import BusyError, DeniedError, UnreachableError

CONTROL_TIMEOUT_SECONDS = 10.0
_IS_TOKEN = b'{"token": "'  # as the daemon writes it
TOKEN_SECONDS = 60.0  # where the daemon does not say how long a token lasts


def token(control: str | os.PathLike[str]) -> tuple[str, float]:
    """A token for this process from the daemon's control socket, and the seconds that it lasts.

    Raises UnreachableError, BusyError or DeniedError.
    """
    import json

    said = token_answer(control)
    try:
        answer = json.loads(said)
    except ValueError as error:
        raise UnreachableError(f"what answers at {control} is no profd ({error}).") from error
    return str(answer["token"]), float(answer.get("expires_s", TOKEN_SECONDS))


def token_answer(control: str | os.PathLike[str]) -> bytes:
    """The daemon's answer with a token for this process: a JSON object. Raises as `token`."""
    deadline = time.monotonic() + CONTROL_TIMEOUT_SECONDS
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connect(sock, str(control), deadline)
        sock.settimeout(_left(deadline))
        said = sock.recv(65536)
        if said.startswith(_IS_TOKEN):
            return said
        import json  # seldom: it takes 3 ms

        answer = json.loads(said or b"{}")
        if not isinstance(answer, dict):
            raise ValueError("what it says is no answer of a profd")
        if "token" in answer:
            return said
    except PermissionError as error:
        raise DeniedError(f"you may not connect to {control}; ask the operator which group may use profd.") from error
    except BlockingIOError as error:
        raise BusyError(
            f"profd is busy: too many wait to connect to {control}, and none was let in for "
            f"{CONTROL_TIMEOUT_SECONDS:g} s. Try again."
        ) from error
    except TimeoutError as error:
        raise UnreachableError(
            f"profd is there, but has said nothing at {control} for {CONTROL_TIMEOUT_SECONDS:g} s. "
            "Try again; where it stays so it is stuck, and its operator can restart it."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UnreachableError(
            f"no profd answers at {control} ({error}).\nIs it running? Start one with `profd --user`."
        ) from error
    finally:
        sock.close()
    kind = BusyError if "retry_s" in answer else DeniedError
    raise kind(str(answer.get("error", f"{control} gave no token")))


def connect(sock: socket.socket, path: str, deadline: float) -> None:
    """Connect by the deadline. Raises OSError: BlockingIOError where the daemon's queue stayed full.

    Where it is full the kernel lets in those who wait for it, in their order: who tries without waiting may never find
    room beside one who does nothing else.
    """
    while True:
        seconds = _left(deadline)
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        try:
            sock.connect(path)
            sock.getpeername()  # of a wait that a signal ended, Python says that it is connected
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ENOTCONN) or time.monotonic() >= deadline:
                raise
        else:
            return


def _left(deadline: float) -> float:
    """Seconds; never 0, which stands for no limit."""
    return max(0.001, deadline - time.monotonic())

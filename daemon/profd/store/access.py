"""The users who may see, and who may change, a trace. Users are their uids: a name may be somebody else's tomorrow."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Final

from profd.errors import BadInput, Denied
from profd.kernel import names as directory
from profd.limits import NAMES_SHARE_SECONDS, SHARE_NAME_CHARACTERS_MAX
from profd.store.catalog import EVERYBODY_UID, TraceRecord
from profd.trust.caller import Caller

EVERYBODY: Final = "*"
_UID: Final = re.compile("0|[1-9][0-9]{0,9}")
_UID_MAX: Final = (1 << 32) - 2


def may_read(caller: Caller, record: TraceRecord) -> bool:
    """Its owner, an admin, and whom it is shared with."""
    if caller.admin or caller.uid == record.owner_uid:
        return True
    readers = record.readers.values()
    return EVERYBODY_UID in readers or caller.uid in readers


def readers_of(names: Iterable[str]) -> dict[str, int]:
    """The uids that these names have now; "*" is everybody. Asks the user database.

    BadInput for who is none, Exhausted where the database does not say within seconds, for all of them together.
    """
    end = time.monotonic() + NAMES_SHARE_SECONDS
    return {name: _uid_of(name, end) for name in sorted(set(names))}


def _uid_of(name: str, end: float) -> int:
    if name == EVERYBODY:
        return EVERYBODY_UID
    if not name or not name.isprintable() or len(name) > SHARE_NAME_CHARACTERS_MAX:
        raise BadInput("Names of users are printable and not empty; '*' means everybody.")
    # No zeros in front: of those a name, which every list of the trace has, could have hundreds.
    number = int(name) if _UID.fullmatch(name) and int(name) <= _UID_MAX else None
    try:
        uid = directory.uid_of(name, max(0.0, end - time.monotonic()))
    except directory.SilentNames as error:
        if number is None:
            raise directory.SilentNames(
                f"This host's directory of users (NSS) does not say who {name!r} is. Give uids, or try again later."
            ) from error
        return number
    if uid is not None:
        return uid
    if number is not None:
        return number
    raise BadInput(f"There is no user {name!r} on this host: name one that there is, give a uid, or '*' for everybody.")


def require_owner(caller: Caller, record: TraceRecord, what: str) -> None:
    """Denied unless the caller owns the trace or is an admin; `what` completes "may not … it"."""
    if not caller.admin and caller.uid != record.owner_uid:
        raise Denied(
            f"Trace {record.id} belongs to {record.owner or record.owner_uid}; {caller.user} may not {what} it. "
            "Ask its owner."
        )

"""The users who may see, and who may change, a trace. Users are their uids: a name may be somebody else's tomorrow."""

from __future__ import annotations

import pwd
from collections.abc import Iterable
from typing import Final

from profd.errors import BadInput, Denied
from profd.limits import SHARE_NAME_CHARACTERS_MAX
from profd.store.catalog import EVERYBODY_UID, TraceRecord
from profd.trust.caller import Caller

EVERYBODY: Final = "*"
_UID_MAX: Final = (1 << 32) - 2


def may_read(caller: Caller, record: TraceRecord) -> bool:
    """Its owner, an admin, and whom it is shared with."""
    if caller.admin or caller.uid == record.owner_uid:
        return True
    readers = record.readers.values()
    return EVERYBODY_UID in readers or caller.uid in readers


def readers_of(names: Iterable[str]) -> dict[str, int]:
    """The uids that these names have now; "*" is everybody. Asks the user database. BadInput for who is none."""
    return {name: _uid_of(name) for name in sorted(set(names))}


def _uid_of(name: str) -> int:
    if name == EVERYBODY:
        return EVERYBODY_UID
    if not name or not name.isprintable() or len(name) > SHARE_NAME_CHARACTERS_MAX:
        raise BadInput("Names of users are printable and not empty; '*' means everybody.")
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        if name.isascii() and name.isdecimal() and int(name) <= _UID_MAX:
            return int(name)
    raise BadInput(f"There is no user {name!r} on this host: name one that there is, give a uid, or '*' for everybody.")


def require_owner(caller: Caller, record: TraceRecord, what: str) -> None:
    """Denied unless the caller owns the trace or is an admin; `what` completes "may not … it"."""
    if not caller.admin and caller.uid != record.owner_uid:
        raise Denied(
            f"Trace {record.id} belongs to {record.owner or record.owner_uid}; {caller.user} may not {what} it. "
            "Ask its owner."
        )

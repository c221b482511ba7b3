"""Who may see and who may change a trace."""

from __future__ import annotations

from profd.errors import Denied
from profd.store.catalog import TraceRecord
from profd.trust.caller import Caller

EVERYBODY = "*"


def may_read(caller: Caller, record: TraceRecord) -> bool:
    """Its owner, an admin, and whom it is shared with."""
    if caller.admin or caller.uid == record.owner_uid:
        return True
    return EVERYBODY in record.shared_with or caller.user in record.shared_with


def require_owner(caller: Caller, record: TraceRecord, what: str) -> None:
    """Denied unless the caller owns the trace or is an admin; `what` completes "may not … it"."""
    if not caller.admin and caller.uid != record.owner_uid:
        raise Denied(
            f"Trace {record.id} belongs to {record.owner or record.owner_uid}; {caller.user} may not {what} it. "
            "Ask its owner."
        )

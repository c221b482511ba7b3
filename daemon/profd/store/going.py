"""What would go for a trace that is not stored yet: said by SQL, beside the catalog's own connection.

The rules are those of `eviction.victims`, whose order is this: each trace by what its user has stored when its turn
comes, the most first, and of equals the oldest. In Python everybody else would wait for a hundred thousand traces.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_GOING: Final = """
WITH there AS (
    SELECT id, owner_uid, created_ns, bytes, pinned FROM traces
        WHERE id NOT IN (SELECT value FROM json_each(:without))
    UNION ALL SELECT '', :uid, 9223372036854775807, :size, 0
), turns AS (
    SELECT id, owner_uid, created_ns, bytes, pinned,
        sum(bytes) OVER (PARTITION BY owner_uid) - coalesce(sum(bytes * (1 - pinned)) OVER (
            PARTITION BY owner_uid ORDER BY created_ns, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS stored
    FROM there
), places AS (
    SELECT id, owner_uid = :uid OR :everything AS seen,
        row_number() OVER (ORDER BY stored DESC, created_ns, id) AS place,
        coalesce(sum(bytes) OVER (
            ORDER BY stored DESC, created_ns, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS freed
    FROM turns WHERE NOT pinned
), going AS (
    SELECT id, seen, row_number() OVER (PARTITION BY seen ORDER BY place) AS nth,
        count(*) OVER (PARTITION BY seen) AS many
    FROM places WHERE freed < (SELECT sum(bytes) FROM there) - :limit
)
SELECT id, seen, many FROM going WHERE id = '' OR nth <= CASE WHEN seen THEN :named ELSE 1 END ORDER BY seen, nth
"""
_SUMS: Final = """
SELECT coalesce(sum(bytes), 0), count(DISTINCT owner_uid) + NOT coalesce(max(owner_uid = :uid), 0),
    coalesce(sum(bytes * (owner_uid = :uid)), 0), coalesce(sum(bytes * pinned * (owner_uid = :uid)), 0) FROM traces
"""


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A trace that is not stored. Bytes."""

    uid: int
    size: int


@dataclass(frozen=True, slots=True)
class Going:
    """What goes for a newcomer, in this order. `named`: ids of the first that may be seen, which are `seen` in all."""

    named: list[str]
    seen: int
    others: int
    itself: bool  # the newcomer would be among them, and is in no count


@dataclass(frozen=True, slots=True)
class Sums:
    """What is stored, in bytes: by all `users`, of whom the newcomer's is one; by that one; of that pinned."""

    stored: int
    users: int
    own: int
    own_pinned: int


def going(
    db: sqlite3.Connection,
    new: Newcomer,
    limit: int,
    *,
    without: Sequence[str] = (),
    named: int = 0,
    all_seen: bool = False,
) -> Going:
    """Traces that go so that the store with the newcomer is within its limit, as far as pins allow.

    The traces of `without` are taken as gone. The newcomer's user sees own ones, or all.
    """
    values = {
        "uid": new.uid,
        "size": new.size,
        "limit": limit,
        "without": json.dumps(list(without)),
        "named": named + 1,
        "everything": all_seen,
    }
    rows = db.execute(_GOING, values).fetchall()
    itself = any(not trace for trace, _, _ in rows)
    many = {bool(seen): count for _, seen, count in rows}
    ids = [trace for trace, seen, _ in rows if trace and seen]
    return Going(ids[:named], many.get(True, 0) - itself, many.get(False, 0), itself)


def sums(db: sqlite3.Connection, uid: int) -> Sums:
    """What is stored."""
    return Sums(*db.execute(_SUMS, {"uid": uid}).fetchone())

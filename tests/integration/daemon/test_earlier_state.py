"""State directories that earlier builds have left: a daemon of now makes of them what the one of that day did.

How they were made, and what is in them: tests/corpus/README.md. Expectations are additive: a new key in an answer is no
fault, one that is gone or says something else is.
"""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import pytest

from tests.support import earlier_agent, earlier_state, readable

pytestmark = pytest.mark.slow

BYTES_MAX = 2 << 20


@pytest.mark.parametrize("name", earlier_state.names())
def test_it_is_recovered(name: str) -> None:
    wanted = earlier_state.expected(name)
    if not wanted["user"] and (why := readable.why_not()):
        pytest.skip(why)
    found = earlier_state.recover(name, user=wanted["user"])
    assert not earlier_state.missing(wanted["found"], found)


@pytest.mark.parametrize("damage", ["gone", "garbage"])
def test_its_catalog_is_only_an_index(damage: str) -> None:
    """What is in the traces and the records beside them is enough."""

    def prepare(folder: Path) -> None:
        for path in folder.glob("state/catalog.sqlite*"):
            path.unlink()
        if damage == "garbage":
            (folder / "state" / "catalog.sqlite").write_bytes(b"no database" * 1000)

    found = earlier_state.recover("library", prepare=prepare)
    assert not earlier_state.missing(earlier_state.expected("library")["found"], found)


def test_a_record_that_is_damaged_costs_its_capture_only() -> None:
    wanted = earlier_state.expected("library")["found"]
    torn = min(wanted["first"]["captures"])

    def prepare(folder: Path) -> None:
        path = folder / "state" / "records" / "captures" / f"{torn}.json"
        path.write_bytes(path.read_bytes()[:100])

    found = earlier_state.recover("library", prepare=prepare)
    for when in ("first", "then"):
        del wanted[when]["captures"][torn]
    wanted["retries"].pop(torn, None)
    assert not earlier_state.missing(wanted, found)


def test_the_corpus_has_every_phase() -> None:
    """It would be of little use if what is generated anew had lost one."""
    states, ends, names = set(), set(), set()
    for name in earlier_state.names():
        with tarfile.open(earlier_state.STATES / f"{name}.tar.xz") as tar:
            for member in tar.getmembers():
                names.add(member.name)
                if re.fullmatch(r"state/records/captures/c\w+\.json", member.name):
                    file = tar.extractfile(member)
                    assert file is not None
                    states |= {target["state"] for target in json.load(file)["targets"]}
        for capture in earlier_state.expected(name)["found"]["then"]["captures"].values():
            ends |= {target["state"] for target in capture["targets"]}
    assert {1, 5, 6, 7, 8, 9, 10, 11} <= states  # what is written down between 1 and 5 is the same as 1
    assert ends == {"stored", "partial", "failed", "busy", "refused", "cancelled"}
    kinds = [
        *(r"state/journal/c\w+/[-\d]+/chunks\.pfc", r"state/journal/c\w+/[-\d]+/\.recording\.json"),
        *(
            r"state/journal/c\w+/[-\d]+/trace\.json",
            r"state/staging/\w+/meta\.json",
            r"state/traces/\.staging-\w+/meta\.json",
            r"state/traces/\w+/flows\.parquet",
        ),
        *(r"state/records/traces/\w+\.json", r"state/kineto-leftovers\.json", r"target/profd-\w+\.json\.tmp"),
        *(r"state/catalog\.sqlite-wal", r"state/audit\.jsonl"),
    ]
    missing = [kind for kind in kinds if not any(re.fullmatch(kind, name) for name in names)]
    assert not missing


def test_the_corpus_is_small() -> None:
    """It lies in git, and so does every version of it."""
    folders = (earlier_state.STATES, earlier_agent.RECORDED)
    assert sum(path.stat().st_size for folder in folders for path in folder.iterdir()) < BYTES_MAX

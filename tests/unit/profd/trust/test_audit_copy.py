"""Copies of audit lines: real datagram sockets stand for the journal and for syslog."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from profd.limits import AUDIT_COPIES_WAITING_MAX, AUDIT_LINES_MAX
from profd.trust.audit import AuditLog
from profd.trust.audit_copy import JOURNALD, SYSLOG, Copier, copier, journald_form, syslog_form

from tests.support.waiting import until

DEADLINE_SECONDS = 60.0


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.settimeout(DEADLINE_SECONDS)
        server.bind(str(tmp_path / "journal"))
        yield server


def test_journald_gets_every_line_as_fields(tmp_path: Path, journal: socket.socket) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", copier=Copier(tmp_path / "journal", journald_form))
    audit.write("denied", 1000, why="a\nPROFD_UID=0\nb", method="m")
    audit.write("capture.switch", 0, enabled=False)
    for action, uid in (("denied", "1000"), ("capture.switch", "0")):
        sent = journal.recv(65536).decode()
        assert sent.endswith("\n")
        pairs = [field.split("=", 1) for field in sent.splitlines()]
        fields = dict(pairs)
        assert len(pairs) == len(fields)
        assert (fields["PROFD_ACTION"], fields["PROFD_UID"]) == (action, uid)
        assert (fields["SYSLOG_IDENTIFIER"], fields["PRIORITY"]) == ("profd-audit", "5")
        assert json.loads(fields["MESSAGE"])["uid"] == int(uid)
    audit.close()
    counts = audit.statistics()
    assert (counts.copies_sent, counts.copies_dropped) == (2, 0)


def test_copies_go_elsewhere_and_none_that_waited_is_lost(tmp_path: Path, journal: socket.socket) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", copier=Copier(tmp_path / "journal", journald_form))
    audit.write("denied", 1000, method="before")
    audit.copy_to(Copier(tmp_path / "journal", syslog_form))
    audit.write("denied", 1000, method="after")
    sent = sorted(journal.recv(65536) for _ in range(2))
    assert sent[0].startswith(b"<85>")
    assert b"after" in sent[0]
    assert b"before" in sent[1]
    until(lambda: audit.statistics().copies_sent == 2, "both copies are sent")
    audit.copy_to(None)
    audit.write("denied", 1000, method="nowhere")
    audit.close()
    assert (audit.statistics().copies_sent, audit.statistics().copies_dropped) == (2, 0)


def test_syslog_gets_every_line(tmp_path: Path, journal: socket.socket) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", copier=Copier(tmp_path / "journal", syslog_form))
    audit.write("denied", 1000, why="a\n<0>b")
    sent = journal.recv(65536).decode()
    match = re.fullmatch(r"<85>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d profd-audit\[\d+\]: (\{.*\})", sent)
    assert match
    assert json.loads(match[1])["why"] == "a\n<0>b"
    audit.close()


def test_summaries_are_copied(tmp_path: Path, journal: socket.socket) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", clock=lambda: 0.0, copier=Copier(tmp_path / "journal", journald_form))
    audit.read("trace.sql", 1000, 1000, trace="t")
    audit.close()
    assert b'"counts": {"trace.sql": 1}' in journal.recv(65536)


def test_a_missing_journal_costs_copies_and_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", copier=Copier(tmp_path / "none", journald_form))
    with caplog.at_level(logging.ERROR):
        for number in range(20):
            audit.write("trace.delete", 0, trace=number)
        until(lambda: audit.statistics().copies_dropped == 20, "what nobody takes is dropped")
    assert caplog.text.count("not copied") == 1
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as late:
        late.settimeout(DEADLINE_SECONDS)
        late.bind(str(tmp_path / "none"))
        audit.write("trace.delete", 0, trace="late")
        assert b'"late"' in late.recv(65536)
    audit.close()
    assert len(audit.path.read_text().splitlines()) == 21


def test_a_full_journal_never_holds_a_caller(tmp_path: Path, journal: socket.socket) -> None:
    """Nobody reads: what the kernel and we hold is bounded, the rest is counted, the file has it all."""
    audit = AuditLog(tmp_path / "audit.jsonl", copier=Copier(tmp_path / "journal", journald_form))
    most = AUDIT_COPIES_WAITING_MAX * 3
    for number in range(most):
        audit.write("trace.delete", 0, trace=number)
    assert audit.statistics().copies_dropped > 0
    assert audit._copier is not None
    assert audit._copier._waiting.qsize() <= AUDIT_COPIES_WAITING_MAX
    assert len(audit.path.read_text().splitlines()) == most
    audit.close()


def test_the_last_room_is_for_admins_and_denials(tmp_path: Path, journal: socket.socket) -> None:
    copies = Copier(tmp_path / "journal", lambda line, action, uid: line)
    while not copies.dropped:
        copies.send(b"x", "trace.import", 1000, urgent=False)
    copies.send(b"urgent", "denied", 1000, urgent=True)
    while journal.recv(100) != b"urgent":
        pass
    copies.close()


def test_who_is_slow_at_the_end_is_not_waited_for(tmp_path: Path, journal: socket.socket) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", copier=Copier(tmp_path / "journal", journald_form))
    for number in range(AUDIT_LINES_MAX):
        audit.write("trace.delete", 0, trace=number)
    audit.close()
    assert len(audit.path.read_text().splitlines()) == AUDIT_LINES_MAX


def test_the_setting_chooses() -> None:
    assert copier("off") is None
    for name, address in (("journald", JOURNALD), ("syslog", SYSLOG)):
        found = copier(name)
        assert found is not None
        assert found._address == str(address)
        found.close()

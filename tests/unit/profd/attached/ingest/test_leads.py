"""Who may allocate how much memory ahead of targets."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator

import pytest
from profd.attached.ingest.leads import Leads
from profd.limits import LEAD_BYTES, LEADS_BYTES_MAX, LEADS_BYTES_PER_UID_MAX, MiB
from profd.targets.errands.office import Errands

from tests.support import arena_writer as writer

CHUNK = 64 * 1024


@pytest.fixture
def office() -> Iterator[Errands]:
    """Who allocates and frees."""
    found = Errands()
    yield found
    found.close()


@pytest.fixture
def big() -> Iterator[int]:
    """What has the size of an arena, and no more of it."""
    fd = os.memfd_create("big", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 64 * MiB)
    yield fd
    os.close(fd)


async def test_an_arena_gets_a_lead_and_doubles_it_up_to_its_size(big: int, office: Errands) -> None:
    leads = Leads(office=office)
    lead = leads.begin(1000, big)
    assert lead.bytes == leads.taken == LEAD_BYTES
    sizes = []
    while lead.grow():
        sizes.append(lead.bytes // MiB)
    assert sizes == [8, 16, 32, 64]
    lead.end(big)
    lead.end(big)
    await leads.done()
    assert leads.taken == 0


async def test_what_was_allocated_is_freed_before_others_get_as_much(big: int, office: Errands) -> None:
    """Whoever keeps the descriptor would keep the memory, on the daemon's account."""
    leads = Leads(office=office)
    lead = leads.begin(1000, big)
    os.posix_fallocate(big, 0, 4 * MiB)
    lead.end(big)
    await leads.done()
    assert (leads.taken, os.fstat(big).st_blocks * 512) == (0, 4096)  # its header stays


async def test_what_cannot_be_freed_stays_taken(big: int, office: Errands) -> None:
    leads = Leads(office=office)
    lead, abandoned = leads.begin(1000, big), leads.begin(1001, big)
    os.posix_fallocate(big, 0, 4 * MiB)
    fcntl.fcntl(big, fcntl.F_ADD_SEALS, 0x10)  # F_SEAL_FUTURE_WRITE
    lead.end(big)
    abandoned.abandon()
    await leads.done()
    assert leads.taken == 2 * LEAD_BYTES


async def test_many_processes_of_one_uid_leave_room_for_others(big: int, office: Errands) -> None:
    leads = Leads(office=office)
    greedy = [leads.begin(1000, big) for _ in range(600)]
    while any(lead.grow() for lead in greedy):
        pass
    assert leads.taken == LEADS_BYTES_PER_UID_MAX
    assert leads.begin(1001, big).bytes == LEAD_BYTES


async def test_many_uids_get_no_more_than_there_is(big: int, office: Errands) -> None:
    leads = Leads(office=office)
    all_of_them = [leads.begin(uid, big) for uid in range(300)]
    assert all(lead.bytes for lead in all_of_them[:100])  # the later, the less
    while any(lead.grow() for lead in all_of_them):
        pass
    assert leads.taken == LEADS_BYTES_MAX
    assert not leads.begin(999, big).bytes
    all_of_them[0].end(big)
    await leads.done()
    assert leads.begin(999, big).bytes


async def test_the_daemons_own_memory_bounds_it(big: int, office: Errands) -> None:
    leads = Leads(lambda: 40 * MiB, office)
    lead = leads.begin(1000, big)
    assert lead.bytes == 10 * MiB // 16 // CHUNK * CHUNK
    while lead.grow():
        pass
    assert lead.bytes == 10 * MiB
    assert Leads(lambda: 0, office).begin(1000, big).bytes == 0


async def test_the_first_memory_of_an_arena_is_there_at_once(office: Errands) -> None:
    chunks = [writer.Chunk(state=writer.FREE, data=b"", count=0) for _ in range(100)]
    fd = writer.arena_fd(chunks)
    os.posix_fallocate(fd, 0, 1)
    leads = Leads(office=office)
    before = os.fstat(fd).st_blocks
    lead = leads.begin(1000, fd)
    await leads.done()
    assert (os.fstat(fd).st_blocks - before) * 512 > 0
    assert (os.fstat(fd).st_blocks - before) * 512 <= lead.bytes // 2
    os.close(fd)


@pytest.mark.parametrize("where", [0, 1, CHUNK - 1, CHUNK * 1000, 1 << 63, (1 << 64) - CHUNK])
async def test_a_header_of_nonsense_costs_nothing(where: int, office: Errands) -> None:
    fd = writer.arena_fd([], header={72: where.to_bytes(8, "little")})
    before = os.fstat(fd)
    leads = Leads(office=office)
    leads.begin(1000, fd)
    await leads.done()
    assert (os.fstat(fd).st_blocks, os.fstat(fd).st_size) == (before.st_blocks, before.st_size)
    os.close(fd)


async def test_what_is_no_arena_gets_nothing_and_harms_nobody(big: int, office: Errands) -> None:
    leads = Leads(office=office)
    leads.begin(1000, big)
    await leads.done()
    assert os.fstat(big).st_blocks == 0
    read, write = os.pipe()
    assert leads.begin(1000, read).bytes == 0
    os.close(read)
    os.close(write)

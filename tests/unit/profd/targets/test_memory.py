"""How much memory a process may still take: files as kernels have them, of cgroups v1 and v2."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from profd.targets import memory as memory_module
from profd.targets.memory import Bound, MemoryLimits, Room

PAGE = resource.getpagesize()
UNLIMITED_V1 = "9223372036854771712\n"
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max file size             {file:20} unlimited            bytes
Max address space         {space:20} unlimited            bytes
Max file locks            unlimited            unlimited            locks
"""
MOUNTS = """22 27 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
35 22 0:30 / {root}/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
36 22 0:31 / {root}/memory rw,relatime shared:10 - cgroup cgroup rw,memory
37 22 0:32 {inner} {root}/uni\\040fied rw,relatime shared:11 - cgroup2 cgroup2 rw,nsdelegate
38 22 0:33 /
"""


class Machine:
    """A made-up /proc and the cgroups that its mountinfo names."""

    def __init__(self, root: Path, inner: str = "/") -> None:
        self.root = root
        self.write("proc/self/mountinfo", MOUNTS.format(root=root, inner=inner))

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def v1(self, group: str, limit: str, used: int, stat: str = "") -> None:
        self.write(f"memory{group}/memory.limit_in_bytes", limit)
        self.write(f"memory{group}/memory.usage_in_bytes", f"{used}\n")
        self.write(f"memory{group}/memory.stat", stat)

    def v2(self, group: str, used: int, stat: str = "", **limits: str) -> None:
        self.write(f"uni fied{group}/memory.current", f"{used}\n")
        self.write(f"uni fied{group}/memory.stat", stat)
        for name, limit in limits.items():
            self.write(f"uni fied{group}/memory.{name}", limit)

    def rooms(self, cgroup: str) -> list[Room]:
        self.write("proc/7/cgroup", cgroup)
        return MemoryLimits(self.root / "proc").rooms(7)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_v1_limits_of_the_group_and_of_all_above(machine: Machine) -> None:
    machine.v1("", UNLIMITED_V1, 9_000_000)
    machine.v1("/pods", "300000\n", 250_000)
    machine.v1("/pods/one", UNLIMITED_V1, 240_000)
    assert machine.rooms("12:cpu,cpuacct:/elsewhere\n5:memory:/pods/one\n1:name=systemd:/x\n0::/nothing\n") == [
        Room(Bound.CGROUP, 50_000, 300_000, 250_000, "/pods")
    ]


STAT_V1 = """cache 90000
mapped_file 1
dirty 1
inactive_file 999999
total_mapped_file 5000
total_dirty 300
total_writeback 200
total_inactive_anon 7000
total_active_anon 7000
total_inactive_file 40000
total_active_file 10000
total_unevictable 0
"""


def test_v1_page_cache_that_can_go_is_free(machine: Machine) -> None:
    machine.v1("/job", "100000\n", 95_000, STAT_V1)
    [room] = machine.rooms("5:memory:/job\n")
    assert room.free == 5_000 + 40_000 + 10_000 - 5_000 - 300 - 200


STAT_V2 = """anon 30000
file 60000
file_mapped 5000
file_dirty 300
file_writeback 200
inactive_anon 1
active_anon 1
inactive_file 40000
active_file 10000
slab_reclaimable 1000
"""


def test_v2_the_tightest_of_max_and_high_of_the_group_and_of_all_above(machine: Machine) -> None:
    machine.v2("/job", 95_000, STAT_V2, max="200000\n", high="100000\n")
    machine.v2("/job/step", 90_000, max="max\n", high="max\n")
    machine.v2("", 500_000)  # the root has no limits
    assert machine.rooms("0::/job/step\n") == [Room(Bound.CGROUP, 49_500, 100_000, 95_000, "/job")]
    machine.v2("/job/step", 90_000, max="91000\n", high="max\n")
    tightest = min(machine.rooms("0::/job/step\n"), key=lambda room: room.free)
    assert tightest == Room(Bound.CGROUP, 1_000, 91_000, 90_000, "/job/step")


def test_more_than_the_limit_in_use_is_nothing_left(machine: Machine) -> None:
    machine.v2("/job", 500, "inactive_file 90000000\n", max="400\n")
    assert machine.rooms("0::/job\n")[0].free == 400  # what can be dropped is at most what is used
    machine.v2("/job", 500, max="400\n")
    assert machine.rooms("0::/job\n")[0].free == 0


def test_a_group_that_is_mounted_as_the_root(tmp_path: Path) -> None:
    machine = Machine(tmp_path, inner="/docker/abc")
    machine.v2("", 10, max="30\n")
    assert machine.rooms("0::/docker/abc\n") == [Room(Bound.CGROUP, 20, 30, 10, "/docker/abc")]
    assert machine.rooms("0::/docker/other\n") == []


@pytest.mark.parametrize("path", ["0::/../../secret\n", "5:memory:/../secret\n", "0::/gone\n", "nonsense\n", ""])
def test_what_cannot_be_seen_from_here_is_unknown(machine: Machine, path: str) -> None:
    machine.write("secret/memory.max", "1\n")
    machine.write("secret/memory.current", "0\n")
    assert machine.rooms(path) == []
    assert MemoryLimits(machine.root / "proc").left(7) is None


def test_the_processs_own_limits(machine: Machine) -> None:
    machine.write("proc/7/limits", LIMITS.format(file="unlimited", space="unlimited"))
    assert machine.rooms("") == []
    machine.write("proc/7/limits", LIMITS.format(file=1_024_000, space=50 * PAGE))
    machine.write("proc/7/statm", "20 10 5 1 0 4 0\n")
    assert machine.rooms("") == [
        Room(Bound.FILE, 1_024_000, 1_024_000),
        Room(Bound.ADDRESS_SPACE, 30 * PAGE, 50 * PAGE, 20 * PAGE),
    ]
    assert MemoryLimits(machine.root / "proc").left(7) is None  # neither is memory


def test_the_host(machine: Machine) -> None:
    machine.write("proc/meminfo", "MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable:   50 kB\n")
    machine.v2("/job", 10_000, max="30000\n")
    assert machine.rooms("0::/job\n")[0] == Room(Bound.HOST, 51_200, name="host")
    assert MemoryLimits(machine.root / "proc").left(7) == 20_000


def test_this_process_has_room() -> None:
    rooms = MemoryLimits().rooms(os.getpid())
    assert all(room.free >= 0 for room in rooms)
    assert Bound.HOST in {room.bound for room in rooms}


@pytest.mark.parametrize("pids", [[7], [*range(100, 140), 7]])
async def test_what_was_seen_ahead_is_said_within_the_block(machine: Machine, pids: list[int]) -> None:
    # GIVEN a process that was looked at, alone or with others of which nothing is known
    machine.write("proc/7/cgroup", "")
    machine.write("proc/meminfo", "MemAvailable: 50 kB\n")
    memory = MemoryLimits(machine.root / "proc")
    ahead = await memory.ahead(4242, pids, len(pids))
    # WHEN something has changed THEN what was seen holds for the block, and no longer
    machine.write("proc/meminfo", "MemAvailable: 10 kB\n")
    with ahead:
        assert memory.rooms(7) == [Room(Bound.HOST, 50 * 1024, name="host")]
        assert (memory.left(7), memory.left(8)) == (50 * 1024, 10 * 1024)
    assert memory.left(7) == 10 * 1024


async def test_a_look_of_the_moments_before_is_not_made_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("profd.targets.memory.time.monotonic", lambda: now[0])
    machine.write("proc/7/cgroup", "")
    machine.write("proc/meminfo", "MemAvailable: 50 kB\n")
    memory = MemoryLimits(machine.root / "proc")
    await memory.ahead(4242, [7, 8], 2)
    machine.write("proc/meminfo", "MemAvailable: 10 kB\n")
    with await memory.ahead(4242, [8], 1):
        assert memory.left(8) == 50 * 1024
    with await memory.ahead(4242, [8, 9], 2):  # of one nothing is known
        assert memory.left(8) == 10 * 1024
    machine.write("proc/meminfo", "MemAvailable: 5 kB\n")
    now[0] += 2 * memory_module._FRESH_SECONDS
    with await memory.ahead(4242, [8], 1):
        assert memory.left(8) == 5 * 1024

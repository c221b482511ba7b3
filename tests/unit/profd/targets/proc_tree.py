"""A made-up /proc in a folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Fake:
    """One process of the tree; `write` puts or replaces its files."""

    root: Path
    pid: int
    name: str = "python3"
    state: str = "S"
    ppid: int = 1
    start_ticks: int = 1000
    vsize: int = 1 << 24
    stack_base: int = 0x7FFE0000
    flags: int = 0
    uids: str = "1000\t1000\t1000\t1000"
    namespace_pids: str = ""
    command: list[str] = field(default_factory=lambda: ["python3", "train.py"])
    environ: dict[str, str] = field(default_factory=dict)
    maps: list[str] = field(default_factory=list)
    cgroup: str = "0::/user.slice\n"
    executable: str = "/usr/bin/python3.11"
    descriptors: dict[int, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.root / str(self.pid)

    def write(self) -> Fake:
        folder = self.folder
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        before_start = [self.state, self.ppid, 0, 0, 0, -1, self.flags, *[0] * 4, 5, 5, *[0] * 6]
        after_start = [self.vsize, 100, 2**64 - 1, 1, 1, self.stack_base, *[0] * 20]
        fields = " ".join(str(value) for value in [*before_start, self.start_ticks, *after_start])
        (folder / "stat").write_bytes(f"{self.pid} ({self.name}) {fields}\n".encode())
        (folder / "status").write_text(
            f"Name:\t{self.name}\nTracerPid:\t0\nUid:\t{self.uids}\nGid:\t{self.uids}\n"
            f"NSpid:\t{self.namespace_pids or self.pid}\n"
        )
        (folder / "cmdline").write_bytes(b"".join(part.encode() + b"\0" for part in self.command))
        variables = [f"{name}={value}".encode() + b"\0" for name, value in self.environ.items()]
        (folder / "environ").write_bytes(b"".join(variables))
        (folder / "cgroup").write_text(self.cgroup)
        lines = [f"7f0000000000-7f0000001000 r-xp 00000000 08:01 42    {path}\n" for path in self.maps]
        (folder / "maps").write_text("".join(lines))
        _link(folder / "exe", self.executable)
        for number, target in self.descriptors.items():
            _link(folder / "fd" / str(number), target)
        return self


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)

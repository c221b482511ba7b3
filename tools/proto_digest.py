"""Print a digest of every .proto of a folder and of its generated code; a test compares it with GENERATED there."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "protos" / "profproto"


def folders(root: Path = ROOT) -> list[Path]:
    """The folders with .proto files, in order of names."""
    return sorted({path.parent for path in root.glob("*/*.proto")})


def digests(folder: Path) -> str:
    """One line a file: sha256 and name, in order of names."""
    files = sorted(path for path in folder.iterdir() if path.suffix == ".proto" or "_pb2" in path.name)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


if __name__ == "__main__":
    for folder in folders():
        (folder / "GENERATED").write_text(digests(folder), encoding="ascii")
        print(folder, file=sys.stderr)

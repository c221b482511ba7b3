"""Print a digest of every .proto and of the code generated from it; a test compares it with GENERATED."""

from __future__ import annotations

import hashlib
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "protos" / "profproto" / "v1"


def digests(folder: Path = FOLDER) -> str:
    """One line a file: sha256 and name, in order of names."""
    files = sorted(path for path in folder.iterdir() if path.suffix == ".proto" or "_pb2" in path.name)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


if __name__ == "__main__":
    print(digests(), end="")

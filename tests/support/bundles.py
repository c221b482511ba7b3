"""Bundles with any files in them: as `profctl export -f bundle` writes them, or not quite."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile


def bundle(files: dict[str, bytes], manifest: bytes | None = None, kind: bytes = tarfile.REGTYPE) -> bytes:
    """These files, and a manifest: theirs (None), these bytes, or none at all (empty)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        stated = {
            name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()
        }
        whole = json.dumps({"files": stated}).encode() if manifest is None else manifest
        for name, data in {**files, **({"MANIFEST.json": whole} if whole else {})}.items():
            header = tarfile.TarInfo(name)
            header.size, header.type = len(data), kind if "/" in name else tarfile.REGTYPE
            archive.addfile(header, io.BytesIO(data))
    return out.getvalue()

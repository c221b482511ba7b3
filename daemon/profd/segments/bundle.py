"""The archive of `export -f bundle`: what may be in it, and its contents out of an untrusted file.

ustar without extensions: each member is a header block, a plain file and padding.
`profd-bundle` comes first and says which format this is, `MANIFEST.json` comes
last and has size and SHA-256 of all others: an archive that was cut or changed is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tarfile
from pathlib import Path
from typing import BinaryIO, Final

from profd.errors import BadTrace
from profd.limits import BUNDLE_FILES_MAX, BUNDLE_MANIFEST_BYTES_MAX, META_BYTES_MAX, TRACE_FILE_BYTES_MAX
from profd.segments.meta import FLOWS_FILE, LATE_FILE, META_FILE

VERSION: Final = 1
VERSION_FILE: Final = "profd-bundle"
MANIFEST: Final = "MANIFEST.json"
BLOCK_BYTES: Final = tarfile.BLOCKSIZE
# Columns that an import computes from the others.
DERIVED: Final = frozenset({"row", "parent", "depth", "linked", "self_time"})
_COPY_BYTES: Final = 1 << 20
_SEGMENT: Final = re.compile(r"segment-\d{5}\.parquet")
_SMALL: Final = {VERSION_FILE: 64, MANIFEST: BUNDLE_MANIFEST_BYTES_MAX, META_FILE: META_BYTES_MAX}
_DAMAGED: Final = "the bundle is damaged: {}; have it exported and copied again"


def is_bundle(head: bytes) -> bool:
    """Whether a file that begins so is a bundle."""
    return head.startswith(VERSION_FILE.encode() + b"\0") and head[257:262] == b"ustar"


def unpack(file: BinaryIO, directory: Path) -> None:
    """Write the members into an existing, empty directory, all of them verified.

    Only names that a trace has, plain files, each once, within the limits of
    `profd.limits`. BadTrace otherwise, and the directory is the caller's to remove.
    """
    found: dict[str, dict[str, object]] = {}
    total = 0
    file.seek(0)
    while True:
        name, size = _header(file)
        if name in found or (name == VERSION_FILE) is bool(found) or len(found) > BUNDLE_FILES_MAX:
            raise _damaged(f"{name} is not expected there")
        total += size
        if size > _SMALL.get(name, TRACE_FILE_BYTES_MAX) or total > TRACE_FILE_BYTES_MAX:
            raise _damaged(f"{name} has {size} bytes, which is too many")
        digest = _copy(file, name, size, directory / name)
        if name == VERSION_FILE:
            _check_version(directory / name)
        if name == MANIFEST:
            break
        found[name] = {"bytes": size, "sha256": digest}
    _check_manifest(directory / MANIFEST, found)
    if META_FILE not in found:
        raise _damaged(f"{META_FILE} is missing")
    for name in (VERSION_FILE, MANIFEST):
        (directory / name).unlink()


def _damaged(what: str) -> BadTrace:
    return BadTrace(_DAMAGED.format(what))


def _header(file: BinaryIO) -> tuple[str, int]:
    block = file.read(BLOCK_BYTES)
    if len(block) < BLOCK_BYTES or not any(block):
        raise _damaged("it ends before its manifest")
    try:
        info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError) as error:
        raise _damaged(f"a member has no proper header ({error})") from error
    if info.type != tarfile.REGTYPE or info.linkname or info.size < 0:
        raise _damaged(f"{info.name!r} is no plain file")
    known = (VERSION_FILE, META_FILE, FLOWS_FILE, LATE_FILE, MANIFEST)
    if info.name not in known and not _SEGMENT.fullmatch(info.name):
        raise _damaged(f"{info.name!r} is no file of a trace")
    return info.name, info.size


def _copy(file: BinaryIO, name: str, size: int, path: Path) -> str:
    """Copy the contents and skip the padding; the SHA-256 of the contents."""
    digest = hashlib.sha256()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as out:
        left = size
        while left:
            data = file.read(min(_COPY_BYTES, left))
            if not data:
                raise _damaged(f"{name} ends too soon")
            digest.update(data)
            out.write(data)
            left -= len(data)
    file.read(-size % BLOCK_BYTES)
    return digest.hexdigest()


def _check_version(path: Path) -> None:
    text = path.read_bytes().strip()
    if not text.isdigit():
        raise _damaged("it does not say its version")
    if int(text) > VERSION:
        raise BadTrace(f"the bundle has version {int(text)}, this profd reads up to {VERSION}: upgrade profd")


def _check_manifest(path: Path, found: dict[str, dict[str, object]]) -> None:
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise _damaged(f"its manifest is no JSON ({error})") from error
    stated = manifest.get("files") if isinstance(manifest, dict) else None
    if stated != found:
        wrong = [name for name in found if not isinstance(stated, dict) or stated.get(name) != found[name]]
        raise _damaged(f"its contents are not those that were packed ({', '.join(wrong[:3]) or 'files are missing'})")

"""Bytes of a disk in words."""

from __future__ import annotations

from profd.limits import GiB, MiB


def amount(count: int) -> str:
    """Bytes → `1.5 GiB`, `512 KiB`, `17 bytes`."""
    for unit, name in ((GiB, "GiB"), (MiB, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}".replace(".0 ", " ")
    return f"{count} bytes" if count != 1 else "1 byte"

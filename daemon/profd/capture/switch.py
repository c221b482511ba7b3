"""Captures on or off for everybody: a file that an operator can touch, or `profctl disable`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from profd.disk.files import write_atomic
from profd.errors import Unavailable

WHY_BYTES_MAX: Final = 1024


class Switch:
    """Off while the file exists; its text is the reason. The file is the only memory, so it survives restarts."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def why_disabled(self) -> str | None:
        """The reason captures are off, None if they are on. Reads the file every time: it acts at once."""
        try:
            # A FIFO must not block the daemon; whatever lies there, its being there is what counts.
            fd = os.open(self.file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError as error:
            return f"{self.file} cannot be looked at ({error.strerror})"
        except OSError:
            return f"{self.file} exists"
        try:
            text = os.read(fd, WHY_BYTES_MAX).decode(errors="replace")
        except OSError:
            text = ""
        finally:
            os.close(fd)
        printable = "".join(c if c.isprintable() else " " for c in text).strip()
        return printable or f"{self.file} exists"

    def check(self) -> None:
        """Raise Unavailable if captures are off."""
        why = self.why_disabled()
        if why is not None:
            raise Unavailable(
                f"captures are switched off on this host: {why}. An admin can run `profctl enable`, "
                f"or remove {self.file}"
            )

    def set(self, enabled: bool, why: str = "") -> None:
        """Write or remove the file. Raises OSError."""
        if enabled:
            self.file.unlink(missing_ok=True)
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self.file, (why or "switched off with `profctl disable`").encode()[:WHY_BYTES_MAX], 0o644)

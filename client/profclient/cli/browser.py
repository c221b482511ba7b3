"""Showing an address that holds a secret in a browser.

Every user of the host can read in /proc the words of a command line, and those that one program hands on to the next.
So the browser is given the name of a file instead, which only its own user can read, and which sends it on.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import webbrowser
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol

from profclient import temporary

_OPENERS: Final = frozenset(("xdg-open", "gio", "gvfs-open", "gnome-open"))
"""Programs that ask the desktop which browser it is."""

# Browsers with a file system of their own, and helpers that open addresses on another machine.
_ELSEWHERE: Final = re.compile(
    r"/snapd?/|\bsnap run\b|/flatpak/|\bflatpak run\b|\bfirejail\b|\bbwrap\b|-server/.*/helpers/|--openExternal"
)
_SNAPS: Final = Path("/var/lib/snapd/desktop/applications")
_SCRIPT_BYTES: Final = 64 * 1024
_ASKING_SECONDS: Final = 5


class Served(Protocol):
    """What a browser is to be led to."""

    on_page: Callable[[], None]  # called when the browser has come

    @property
    def entrance(self) -> str:
        """A page in HTML that leads there."""
        ...


def browse(served: Served, ending: ExitStack) -> bool:
    """Open the address in a browser, without the address on a command line. Returns whether one took it.

    Without a display there are only browsers that fill the terminal, and not all of them can read our files.
    """
    if not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")):
        return False
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    if not reads_our_files(getattr(browser, "name", "")):
        return False
    try:
        page = PrivatePage(served.entrance)
    except PermissionError:  # another user could lead the browser elsewhere
        return False
    ending.callback(page.remove)
    served.on_page = page.remove
    return browser.open(page.url)


class PrivatePage:
    """A page in a file that nobody else can read."""

    def __init__(self, text: str) -> None:
        """PermissionError where another user could put another file in its place."""
        self._folder = Path(tempfile.mkdtemp(prefix="profctl-open-", dir=temporary.place()))  # 0700
        file = self._folder / "open.html"
        with open(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as page:
            page.write(text)
        self.url = file.as_uri()

    def remove(self) -> None:
        """Remove the file, which was read or has no reader any more; idempotent."""
        shutil.rmtree(self._folder, ignore_errors=True)


def reads_our_files(browser: str) -> bool:
    """Whether this program sees the files that we see; one that we know nothing of does."""
    found = shutil.which(browser)
    if found is None:
        return True
    if Path(browser).name in _OPENERS and not _desktop_reads_our_files():
        return False
    file = Path(found)
    real = file.resolve()
    if any(_ELSEWHERE.search(str(path)) or path.name in ("snap", "flatpak", "firejail") for path in (file, real)):
        return False
    return not _ELSEWHERE.search(_script(real))


def _script(file: Path) -> str:
    """Its text; empty where it is none, or not ours to read."""
    try:
        with file.open("rb") as opened:
            start = opened.read(_SCRIPT_BYTES)
    except OSError:
        return ""
    return start.decode("utf-8", "replace") if start.startswith(b"#!") else ""


def _desktop_reads_our_files() -> bool:
    """Whether the desktop's program for HTML files is its browser, and is in no sandbox."""
    file, web = (_default_of(kind) for kind in ("text/html", "x-scheme-handler/http"))
    if not file:
        return True
    snap = (_SNAPS / file).exists()
    flatpak = any((folder / file).exists() for folder in _flatpaks())
    return file == web and not snap and not flatpak


def _default_of(kind: str) -> str:
    """The desktop file of the program that opens this kind; empty where nobody knows."""
    try:
        command = ["xdg-mime", "query", "default", kind]
        asked = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_ASKING_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.strip()


def _flatpaks() -> list[Path]:
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    return [root / "flatpak/exports/share/applications" for root in (data, Path("/var/lib"))]

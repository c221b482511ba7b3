"""Calls that are cancelled while a thread of theirs goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest


async def assert_writes_nowhere(
    asking: asyncio.Task[Any], entered: threading.Event, go_on: threading.Event, folder: Path
) -> None:
    """Cancel a call whose thread has `entered`, and writes when it may `go_on`: into no file opened in between."""
    assert await asyncio.to_thread(entered.wait, 60)
    asking.cancel()
    for _ in range(9):
        await asyncio.sleep(0)
    with contextlib.ExitStack() as others:
        files = [others.enter_context((folder / f"other{number}").open("wb")) for number in range(64)]
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.get_running_loop().shutdown_default_executor()
        assert [os.fstat(file.fileno()).st_size for file in files] == [0] * 64

"""SIGHUP: the settings are read again, and what can change while the daemon runs changes.

Nothing of a file that cannot be read, or that no daemon would start with, takes effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from profd.errors import ProfdError
from profd.host.config import FIELDS, Config
from profd.host.groups import gid_of
from profd.host.notify import Notifier

Use = Callable[[Config], None]
"""Takes over a setting that has changed, on the event loop's thread. Raises OSError, ProfdError: it does not hold."""

# The others are of sockets, processes and directories that exist from the start (docs/configuration.md has the column).
RELOADED: Final = (
    *("admin_group", "socket_group", "store_bytes", "disabled_file", "log_level", "log_format"),
    *("sdk.arena_bytes", "gpu.collector", "gpu.cuda_graphs", "gpu.detach", "gpu.process_metrics"),
    *("torch.build", "audit.copy"),
)

log = logging.getLogger("profd")


class Reloader:
    """The settings in force. `soon` may be called at any time, also before the daemon serves."""

    def __init__(self, config: Config, read: Callable[[], Config], notifier: Notifier) -> None:
        """`read`: the settings as a start would have them now; raises ProfdError."""
        self.config = config
        self.on_changed: Callable[[list[str]], None] = lambda keys: None
        self.failed = False  # the last time
        self._read = read
        self._notifier = notifier
        self._uses: Mapping[str, Use] | None = None
        self._wanted = False
        self._task: asyncio.Task[None] | None = None

    def open(self, uses: Mapping[str, Use]) -> None:
        """From now on settings can change; `uses` has all of RELOADED."""
        self._uses = uses
        if self._wanted:
            self.soon()

    def close(self) -> None:
        """Nothing changes any more."""
        self._uses = None

    def soon(self) -> None:
        """Read the settings again; once more where that is being done already."""
        self._wanted = True
        if self._uses is not None and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._reload(), name="profd-reload")

    async def _reload(self) -> None:
        while self._wanted and self._uses is not None:
            self._wanted = False
            self._notifier.reloading()
            try:
                told = self._take_over(await asyncio.to_thread(self._checked))
                self.failed = False
            except ProfdError as error:
                log.error("the settings were not reloaded; those of before hold", extra={"why": str(error)})
                told = f"not reloaded: {error}"
                self.failed = True
            self._notifier.told(told)

    def _checked(self) -> Config:
        """Files and the group database may be slow: in a thread."""
        found = self._read()
        gid_of("admin_group", found.admin_group)
        gid_of("socket_group", found.socket_group)
        return found

    def _take_over(self, found: Config) -> str:
        """What has changed, one by one; the sentence for systemd."""
        changed = [key for key, field in FIELDS.items() if getattr(found, field) != getattr(self.config, field)]
        done = [key for key in changed if key in RELOADED and self._use(key, found)]
        later = [key for key in changed if key not in RELOADED]
        log.info("settings reloaded", extra={"changed": done})
        if later:
            log.warning("settings that changed hold after a restart", extra={"settings": later})
        if done:
            self.on_changed(done)
        return f"reloaded: {', '.join(done) or 'nothing changed'}" + (
            f"; after a restart: {', '.join(later)}" if later else ""
        )

    def _use(self, key: str, found: Config) -> bool:
        if self._uses is None:
            return False
        field = FIELDS[key]
        after = replace(self.config, **{field: getattr(found, field)})
        try:
            self._uses[key](after)
        except (OSError, ProfdError) as error:
            log.error(
                "a setting was not reloaded; its value of before holds", extra={"setting": key, "why": str(error)}
            )
            return False
        self.config = after
        return True

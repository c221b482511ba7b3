"""The sockets of the daemon, each a file: who may connect to it, and that it is there until the end."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from profd.attached.agents.server import AgentServer
from profd.host.config import Config
from profd.host.groups import gid_of
from profd.host.instance import clear_socket, make_directory, remove_socket
from profd.host.socket_files import SocketFiles
from profd.kernel import passed
from profd.limits import LISTEN_BACKLOG
from profd.trust.control import ControlServer


class Sockets:
    """Binds them, and watches their files from `watch` until the stack closes."""

    def __init__(self, config: Callable[[], Config], closing: contextlib.AsyncExitStack) -> None:
        """`config`: the settings as they are now; where the sockets are never changes."""
        self.files = SocketFiles()
        self._config = config
        self._closing = closing

    @property
    def passed(self) -> int:
        """The mode of directories that others pass and do not list: who lists one can keep us from changing it."""
        return 0o700 if self._config().user else 0o711

    def clear(self) -> None:
        """Remove the files that an earlier daemon has left. Raises Unavailable where somebody still listens."""
        config = self._config()
        for path in (config.socket, config.control, config.agents):
            clear_socket(path)

    def listen(self, path: Path) -> socket.socket:
        """A SEQPACKET socket for those who may connect."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if path != self._config().agents:  # which pass their arenas
            passed.take_none(listener)
        listener.bind(str(path))
        self.permit(path)
        listener.listen(LISTEN_BACKLOG)  # before it, nobody can connect
        return listener

    def keep_listening(self, name: str, path: Path, server: AgentServer | ControlServer) -> None:
        """Serve on this file until the end, also when somebody has removed it; it is removed then."""

        async def listen() -> None:
            server.listen_on(self.listen(path))

        self.keep(name, path, listen)
        self._closing.callback(remove_socket, path)
        server.open()
        self._closing.callback(server.close)

    def keep(self, name: str, path: Path, bind: Callable[[], Awaitable[None]]) -> None:
        """Have a file that is gone bound anew, with its directory if need be."""

        async def anew() -> None:
            make_directory(path.parent, self.passed)
            clear_socket(path)
            await bind()

        self.files.add(name, path, anew)

    def watch(self) -> None:
        """Look at the files until the end."""
        self.files.open()
        self._closing.push_async_callback(self.files.close)

    def permit(self, path: Path) -> None:
        """Say on the file of a socket, which nobody may connect to yet, who may. Raises BadInput."""
        self._allow(path, self._config())

    def use_group(self, config: Config) -> None:
        """Let the group of these settings connect, and no other."""
        for path in (config.socket, config.control, config.agents):
            self._allow(path, config)

    def _allow(self, path: Path, config: Config) -> None:
        gid = gid_of("socket_group", config.socket_group)
        if gid is not None:
            os.chown(path, -1, gid)
        path.chmod(0o600 if config.user else 0o666 if gid is None else 0o660)

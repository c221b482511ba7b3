"""Becomes the builder: bounded first (`tasks`), then another user. Run by `builder` in an interpreter of its own.

Arguments: GROUP CONVERSATION UID GID program …; GROUP is the directory of the cgroup that it joins (empty: none),
CONVERSATION the descriptor on which the filter's listener goes to the daemon, UID and GID are -1 where the daemon has
no other to give. No process of that user can have a hand in it: until the exec it is not dumpable, and from then on it
holds a capability that they do not have.
"""

from __future__ import annotations

import os
import socket
import sys

from profd.kernel import capabilities, joining
from profd.observers import tasks
from profd.workers import confine


def main(arguments: list[str]) -> None:
    """Ends with status 1 where it cannot; the daemon then gets no listener."""
    joining.join(arguments[0])
    conversation, uid, gid = (int(value) for value in arguments[1:4])
    command = arguments[4:]
    filter_ = tasks.program()
    confine.no_new_privileges()
    listener = -1 if filter_ is None else confine.install(filter_, confine.NEW_LISTENER)
    if listener < 0:
        sys.exit(1)
    with socket.socket(fileno=conversation) as said:
        socket.send_fds(said, [b"+"], [listener])
    os.close(listener)
    if uid != -1:
        capabilities.bound(capabilities.GUARD)
        capabilities.become(uid, gid)
        capabilities.keep(capabilities.permitted() & capabilities.GUARD)
    os.execv(command[0], command)  # noqa: S606 - the point

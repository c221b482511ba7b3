"""Into the cgroup that bounds a child of the daemon, which the child enters itself, before it is another user."""

# Launchers import this: nothing here needs typing.

from __future__ import annotations


def join(directory: str) -> None:
    """Move this process and its threads into a cgroup (v2), by its directory; empty: it stays. Raises OSError.

    It takes ten to sixty milliseconds, in which nothing is done: the kernel waits until no process forks or ends.
    """
    if directory:
        with open(f"{directory}/cgroup.procs", "w") as processes:
            processes.write("0")

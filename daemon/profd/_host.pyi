"""What the daemon asks of the kernel, where Python would wait or be too slow (native/host)."""

def ask(requests: list[tuple[int, str, int]], seconds: float) -> tuple[int, list[bytes | int]]:
    """Have files, links and directories read by a process that is given up when it waits for longer than that.

    A request is (kind, path, limit): targets/guarded.py has the kinds. An answer is what was read, a descriptor, or
    -errno (-EINPROGRESS: it was not reached). First comes 0 (answered), 1 (given up) or 2 (no process could be made).
    """

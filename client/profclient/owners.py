"""Whose a folder is that the environment names.

`su` and `sudo` can leave root with the variables of whoever called them, so that what lies there is that user's.
Imported in targets: it brings nothing along.
"""

from __future__ import annotations

import os
import stat

_NOBODY = 65534  # as whom a user namespace shows those that it has no number for
_ALL = ["0", "0", "4294967295"]


def are_ours(base: str, *below: str) -> bool:
    """Whether `base` and what is there of the folders `below` it, each in the one before, are this user's or root's.

    Others can put nothing into them, or take anything away. Of a base that is not there the folder above counts.
    """
    above = os.path.abspath(base)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    places = [above]
    if above == os.path.abspath(base):
        for name in below:
            places.append(os.path.join(places[-1], name))
    return all(_is_closed(place) for place in places if os.path.lexists(place))


def stay_ours(base: str, *below: str) -> bool:
    """`are_ours`, and what of these is not there yet cannot be made by somebody else, as in `/tmp`."""
    if not are_ours(base, *below):
        return False
    last = whole = os.path.abspath(os.path.join(base, *below))
    while not os.path.lexists(last):
        last = os.path.dirname(last)
    return last == whole or not os.stat(last).st_mode & stat.S_IWOTH


def open_above(path: str) -> str:
    """The first directory above, as `path` is written or as it leads on, where others can put another in its place.

    Empty: there is none. In a user namespace what is above its own files is the host's.
    """
    strangers = () if _sees_all() else (_NOBODY,)
    for leading in (os.path.abspath(path), os.path.realpath(path)):
        while (above := os.path.dirname(leading)) != leading:
            if os.path.lexists(above) and not _is_closed(above, *strangers):
                return above
            leading = above
    return ""


def _sees_all() -> bool:
    try:
        with open("/proc/self/uid_map") as file:
            return file.read(100).split() == _ALL
    except OSError:
        return True


def _is_closed(folder: str, *others: int) -> bool:
    try:
        found = os.stat(folder)
    except OSError:
        return False
    open_to_all = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
    return found.st_uid in (0, os.geteuid(), *others) and not open_to_all

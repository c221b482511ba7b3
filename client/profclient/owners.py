"""Whose a folder is that the environment names.

`su` and `sudo` can leave root with the variables of whoever called them, so that what lies there is that user's.
Imported in targets: it brings nothing along.
"""

from __future__ import annotations

import os
import stat


def is_ours(folder: str) -> bool:
    """Whether it exists, and belongs to this user or to root."""
    try:
        return os.stat(folder).st_uid in (0, os.geteuid())
    except OSError:
        return False


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


def _is_closed(folder: str) -> bool:
    try:
        found = os.stat(folder)
    except OSError:
        return False
    open_to_all = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
    return found.st_uid in (0, os.geteuid()) and not open_to_all

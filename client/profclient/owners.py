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

    Others can put nothing into them, take nothing away, and put no other folder in the place of the base. Of a base
    that is not there the folder above counts.
    """
    above = os.path.abspath(base)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    places = [above]
    if above == os.path.abspath(base):
        for name in below:
            places.append(os.path.join(places[-1], name))
    return all(_is_closed(place) for place in places if os.path.lexists(place)) and not open_above(above)


def stay_ours(base: str, *below: str) -> bool:
    """`are_ours`, and what of these is not there yet cannot be made by somebody else, as in `/tmp`."""
    if not are_ours(base, *below):
        return False
    last = whole = os.path.abspath(os.path.join(base, *below))
    while not os.path.lexists(last):
        last = os.path.dirname(last)
    return last == whole or not others_write(last)


def open_above(path: str) -> str:
    """The first directory above, as `path` is written or as it leads on, where others can put another in its place.

    Empty: there is none. In a user namespace what is above its own files is the host's. Users other than root live in
    what others own, a project's for example, and believe these.
    """
    strangers = () if _sees_all() else (_NOBODY,)
    believed = os.geteuid() != 0
    for leading in (os.path.abspath(path), os.path.realpath(path)):
        while (above := os.path.dirname(leading)) != leading:
            leads_away = not believed and _is_link_of_others(leading, *strangers)
            if leads_away or (os.path.lexists(above) and not _is_closed(above, *strangers, believed=believed)):
                return above
            leading = above
    return ""


def others_write(folder: str) -> bool:
    """Whether everybody may write into it, or a group: its members are other users. Raises OSError.

    A group of its owner's number is that user's alone, as systems make one for each; root's is root's. Where an access
    list says more, the mode has its widest for the group.
    """
    found = os.stat(folder)
    if not found.st_mode & stat.S_IWGRP or found.st_mode & stat.S_IWOTH:
        return bool(found.st_mode & stat.S_IWOTH)
    return found.st_gid not in (0, found.st_uid) or _has_acl(folder)


def _has_acl(folder: str) -> bool:
    try:
        os.getxattr(folder, "system.posix_acl_access")
    except OSError:
        return False
    return True


def _sees_all() -> bool:
    try:
        with open("/proc/self/uid_map") as file:
            return file.read(100).split() == _ALL
    except OSError:
        return True


def _is_link_of_others(path: str, *others: int) -> bool:
    """Its maker leads it anywhere, also from a folder in which nobody takes others' things away."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.geteuid(), *others)


def _is_closed(folder: str, *others: int, believed: bool = False) -> bool:
    """`believed`: its owner is, whoever that is."""
    try:
        found = os.stat(folder)
        takes_away = not found.st_mode & stat.S_ISVTX and others_write(folder)
    except OSError:
        return False
    return (believed or found.st_uid in (0, os.geteuid(), *others)) and not takes_away

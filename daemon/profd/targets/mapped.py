"""Conclusions from the libraries that a process has mapped."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from profd import _host
from profd.targets.errands.child import NoAnswer
from profd.targets.errands.office import errands

_VERSION: Final = re.compile(rb"^__version__ = '([0-9A-Za-z.+_-]{1,64})'", re.MULTILINE)
_VERSION_BYTES: Final = 4096

_PYTHON: Final = re.compile(rb"^(?:libpython3|libpypy3|python3?(?:\.\d+)?$|pypy3?(?:\.\d+)?$)")
_JAX: Final = (b"libjax_common.so", b"xla_extension.so", b"_jax.so", b"_jax.")
_TENSORFLOW: Final = (
    b"libtensorflow_framework.so",
    b"libtensorflow_cc.so",
    b"_pywrap_tensorflow_internal.so",
)
_TORCH: Final = (b"libtorch_cpu.so", b"libtorch_python.so")
_NAMES: Final = (
    *(b"libpython3", b"libpypy3", b"python", b"pypy", b"libcuda.so"),
    *(*_TORCH, *_JAX, *_TENSORFLOW),
)
_NAMES_MAX: Final = 1024  # of one process; a real one has ten


@dataclass(frozen=True, slots=True)
class Mapped:
    """Facts from /proc/PID/maps. `torch_library` is a path in the process's own mount namespace."""

    python: bool = False
    cuda: bool = False
    torch_library: str = ""
    jax: bool = False
    tensorflow: bool = False

    @property
    def framework(self) -> str:
        """The word of `Process.framework` without the fallback for a plain interpreter."""
        if self.torch_library:
            return "torch"
        if self.jax:
            return "jax"
        if self.tensorflow:
            return "tensorflow"
        if self.cuda:
            return "cuda"
        return "python" if self.python else ""


def parse_maps(raw: bytes) -> Mapped:
    """Look through the text of /proc/PID/maps, which may be cut anywhere."""
    python = cuda = jax = tensorflow = False
    torch = b""
    for path in _host.mapped_names(raw, _NAMES, _NAMES_MAX):
        folder, _, name = path.rpartition(b"/")
        python = python or bool(_PYTHON.match(name))
        cuda = cuda or name.startswith(b"libcuda.so")
        jax = jax or (name.startswith(_JAX) and b"jaxlib" in folder)
        tensorflow = tensorflow or name.startswith(_TENSORFLOW)
        # libtorch_cpu alone is a C++ program; it has the same Kineto.
        if name == b"libtorch_cpu.so" or (name == b"libtorch_python.so" and not torch):
            torch = path
    return Mapped(python, cuda, os.fsdecode(torch), jax, tensorflow)


def torch_version(process_root: Path, library: str, uid: int, gids: Sequence[int]) -> str | None:
    """The version of the torch package that a mapped library belongs to, empty if it cannot be told.

    None where its file system does not answer in time: another look may be told.

    `process_root` is /proc/PID/root and the process decides what lies there, so
    that no link is followed (the kernel reports mapped paths without links),
    only a version number can come back, and only of what `uid` with `gids` could
    read: whoever mounts there need not be able to look into what they mount.
    """
    package, _, tail = library.rpartition("/lib/")
    if not package or "/" in tail:
        return ""
    parts = _read(process_root, (f"{package}/version.py",), _VERSION_BYTES, uid, gids)
    if parts is None:
        return None
    found = _VERSION.search(parts[0])
    return found.group(1).decode("ascii") if found else ""


def read(process_root: Path, paths: Sequence[str], limit: int, uid: int, gids: Sequence[int]) -> list[bytes]:
    """The first bytes of regular files of a process that this identity may read, reached through no link.

    None where that fails or takes long.
    """
    return _read(process_root, paths, limit, uid, gids) or [b""] * len(paths)


def _read(process_root: Path, paths: Sequence[str], limit: int, uid: int, gids: Sequence[int]) -> list[bytes] | None:
    """The same; None where it takes long."""
    try:
        asked = ("read", os.fsencode(process_root), [os.fsencode(path) for path in paths], limit, uid, list(gids))
        found = errands.once(process_root.parent, *asked)
        return [part or b"" for part in msgspec.convert(found, list[bytes | None])]
    except NoAnswer:
        return None
    except (OSError, msgspec.ValidationError):
        return [b""] * len(paths)

"""What the libraries that a process has mapped say about it."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profd.targets import procfs

_PATHS: Final = re.compile(rb"^\S+ \S+ \S+ \S+ \S+ +(/[^\n]+)$", re.MULTILINE)
_VERSION: Final = re.compile(rb"^__version__ = '([0-9A-Za-z.+_-]{1,64})'", re.MULTILINE)
_VERSION_BYTES: Final = 4096
_PATH_COMPONENTS: Final = 64

_PYTHON: Final = re.compile(rb"^(?:libpython3|libpypy3|python3?(?:\.\d+)?$|pypy3?(?:\.\d+)?$)")
_JAX: Final = (b"libjax_common.so", b"xla_extension.so", b"_jax.so", b"_jax.")
_TENSORFLOW: Final = (
    b"libtensorflow_framework.so",
    b"libtensorflow_cc.so",
    b"_pywrap_tensorflow_internal.so",
)
_DELETED: Final = b" (deleted)"  # the file was replaced under the process, by pip for one


@dataclass(frozen=True, slots=True)
class Mapped:
    """Facts from /proc/PID/maps. `torch_library` is a path in the process's own mount namespace."""

    python: bool = False
    cuda: bool = False
    musl: bool = False
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
    python = cuda = musl = jax = tensorflow = False
    torch = b""
    for path in set(_PATHS.findall(raw)):
        path = path.removesuffix(_DELETED)
        folder, _, name = path.rpartition(b"/")
        python = python or bool(_PYTHON.match(name))
        cuda = cuda or name.startswith(b"libcuda.so")
        musl = musl or name.startswith(b"ld-musl-")
        jax = jax or (name.startswith(_JAX) and b"jaxlib" in folder)
        tensorflow = tensorflow or name.startswith(_TENSORFLOW)
        # libtorch_cpu alone is a C++ program; it has the same Kineto.
        if name == b"libtorch_cpu.so" or (name == b"libtorch_python.so" and not torch):
            torch = path
    return Mapped(python, cuda, musl, os.fsdecode(torch), jax, tensorflow)


def torch_version(process_root: Path, library: str) -> str:
    """The version of the torch package that a mapped library belongs to, empty if it cannot be told.

    `process_root` is /proc/PID/root and the process decides what lies there, so
    that no link is followed (the kernel reports mapped paths without links) and
    only a version number can come back.
    """
    package, _, tail = library.rpartition("/lib/")
    if not package or "/" in tail:
        return ""
    found = _VERSION.search(read_without_links(process_root, f"{package}/version.py", _VERSION_BYTES) or b"")
    return found.group(1).decode("ascii") if found else ""


def read_without_links(process_root: Path, path: str, limit: int) -> bytes | None:
    """The first bytes of a regular file of a process, reached without following any link; None if that fails."""
    fd = _open_without_links(process_root, path.split("/")[1:])
    if fd is None:
        return None
    try:
        return os.read(fd, limit)
    except OSError:
        return None
    finally:
        os.close(fd)


def _open_without_links(root: Path, components: list[str]) -> int | None:
    """Open the regular file root/a/b/c, refusing a link at any component but the root; None if that fails."""
    if len(components) > _PATH_COMPONENTS or any(part in ("", ".", "..") for part in components):
        return None
    folder_flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        fd = procfs.opened(root, folder_flags)
        for place, part in enumerate(components):
            last = place == len(components) - 1
            flags = os.O_PATH | os.O_CLOEXEC if last else folder_flags
            try:
                inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=fd)
            finally:
                os.close(fd)
            fd = inner
        return _opened_if_regular(fd)
    except (OSError, ValueError):
        return None


def _opened_if_regular(path_fd: int) -> int | None:
    """The file behind an O_PATH descriptor, which is closed. Opening a device does something: it is looked at first."""
    try:
        if not stat.S_ISREG(os.fstat(path_fd).st_mode):
            return None
        return os.open(f"/proc/self/fd/{path_fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(path_fd)

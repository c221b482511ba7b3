"""Compiling the observer for the torch of one Python, ahead of time: for a user, and for the daemon (`builder`)."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from profclient.errors import ClientError, DeniedError, NotFoundError, UsageError
from profclient.torch import builds, notes, sources
from profclient.torch import private as private_place
from profclient.torch.builds import Build, Key

_COMPILERS: Final = ("c++", "g++", "clang++")
_COMPILE_SECONDS: Final = 900
_ASK_SECONDS: Final = 300

# In the Python that is named, which may have none of our packages.
_ASK: Final = """
import sys
sys.path[:] = [place for place in sys.path if place]  # not where we are, which may be another user's
import json, os, platform, torch
print("PROFD " + json.dumps({
    "torch": str(torch.__version__), "git": str(torch.version.git_version),
    "cxx11_abi": bool(torch._C._GLIBCXX_USE_CXX11_ABI), "machine": platform.machine(),
    "home": os.path.dirname(os.path.abspath(torch.__file__)), "cuda": torch.version.cuda or "",
}))
"""


class BuildFailed(ClientError):
    """The compiler refused, or there is none; str() has the end of what it said."""


@dataclass(frozen=True, slots=True)
class Torch:
    """The torch of one Python."""

    python: str
    home: Path  # of the package
    key: Key
    cuda: str = ""  # the CUDA it was built for; empty: none


def ask(python: str) -> Torch:
    """The torch of this Python. Raises NotFoundError, UsageError."""
    try:
        asked = [python, "-c", _ASK]
        done = subprocess.run(
            asked, capture_output=True, text=True, errors="replace", timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{python} cannot be run: {error}") from None
    line = next((line for line in done.stdout.splitlines() if line.startswith("PROFD ")), "")
    if not line:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise NotFoundError(f"{python} has no torch that can be imported: {last}\nName another one with --python.")
    said: dict[str, Any] = json.loads(line.removeprefix("PROFD "))
    home, cuda = Path(said.pop("home")), str(said.pop("cuda"))
    if not (home / "include" / "ATen" / "record_function.h").is_file():
        raise NotFoundError(f"the torch at {home} has no C++ headers; the observer is built against them")
    return Torch(python, home, Key(**said, sources=sources.digest()), cuda)


def compiler() -> list[str]:
    """The C++ compiler: $CXX, else the first that is there. Raises NotFoundError, UsageError."""
    try:
        given = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise UsageError(f"CXX is no command ({error}): {os.environ['CXX']}") from None
    if given:
        return given
    for name in _COMPILERS:
        if shutil.which(name):
            return [name]
    raise NotFoundError(
        "no C++ compiler was found (c++, g++, clang++; or name one with CXX=).\n"
        "Where none can be installed, build where the same torch is: profctl torch build --into DIR, and copy DIR."
    )


def command(
    torch: Torch, chosen: list[str], output: Path, source: Path | None = None, *, more: tuple[str, ...] = ()
) -> list[str]:
    """The whole command line, for the observer or another source, whose first #include has to be one of ours.

    gcc loads a precompiled header in place of the first, as it is, and `more` and torch's folders may hold what others
    wrote; so before them comes ours of the name that every compiler includes before all. Without -DNDEBUG torch's
    headers describe other layouts than its libraries have.
    """
    ours = Path(sources.directory()) / "torch"
    source = source or ours / "all.cpp"
    libraries = torch.home / "lib"
    includes = (torch.home / "include", torch.home / "include" / "torch" / "csrc" / "api" / "include")
    return [
        *chosen,
        *("-O2", "-DNDEBUG", "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden"),
        # What lies in torch's folder is data: no code in it is run by the linker's plugin for LTO.
        *("-fno-lto", "-fno-use-linker-plugin"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.key.cxx11_abi)}",
        f'-DPROFD_TORCH_BUILD="{torch.key.text}"',
        f"-isystem{ours / 'first'}",
        *more,
        *(f"-isystem{path}" for path in includes),
        *_thread_locals(chosen, torch.key.machine),
        *("-o", str(output), str(source)),
        *(f"-L{libraries}", "-lc10", "-ltorch_cpu", "-Wl,--no-undefined", "-Wl,-z,nodelete", "-Wl,-s"),
    ]


def cuda_command(torch: Torch, chosen: list[str], output: Path, headers: Path) -> list[str]:
    """The same for the part that hears of allocations on CUDA devices."""
    ours = Path(sources.directory()) / "torch"
    # NVIDIA's wheels lack headers that nvcc brings: ours stand in for them, one of them only where there is none.
    stand_ins = (f"-isystem{ours / 'cuda' / 'first'}", f"-isystem{headers}", "-idirafter", f"{ours / 'cuda' / 'last'}")
    return [*command(torch, chosen, output, ours / "cuda_memory.cpp", more=stand_ins), "-lc10_cuda"]


def cuda_headers(torch: Torch) -> Path | None:
    """The first folder with cuda_runtime_api.h: of the wheels that torch brings, of CUDA_HOME, or of the system."""
    wheels = sorted((torch.home.parent / "nvidia").glob("*/include"))
    system = [Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda") / "include"]
    return next((path for path in [*wheels, *system] if (path / "cuda_runtime_api.h").is_file()), None)


def _thread_locals(chosen: list[str], machine: str) -> tuple[str, ...]:
    """TLS descriptors where the compiler has them: some nanoseconds less per event. Elsewhere they are usual."""
    if machine != "x86_64":
        return ()
    test = [*chosen, "-mtls-dialect=gnu2", "-x", "c++", "-fsyntax-only", "/dev/null"]
    return ("-mtls-dialect=gnu2",) if _answer(test).returncode == 0 else ()


def _answer(question: list[str]) -> subprocess.CompletedProcess[str]:
    """What the compiler says to a short question. Raises BuildFailed where there is none, or no answer."""
    try:
        return subprocess.run(
            question, capture_output=True, text=True, errors="replace", timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildFailed(f"The C++ compiler cannot be used: {error}\nName another one with CXX=.") from None


def there(torch: Torch, into: Path | None = None) -> Build | None:
    """The usable build that `build` would make anew."""
    try:
        found = builds.read((into or builds.cache()) / torch.key.directory)
        builds.check(found, torch.key)
    except builds.Unusable:
        return None
    return found


def build(torch: Torch, into: Path | None = None, *, private: bool = False) -> Build:
    """Compile, and put the result in its place in one step. Raises BuildFailed, NotFoundError, UsageError.

    `private`: the place is one that `private.place` has opened; without a place it is the caller's own cache.
    """
    chosen = compiler()
    place = into or builds.cache()
    if into is None:
        with private_place.place(place.parent.parent):
            return build(torch, place, private=True)
    with _workplace(place, private=private) as (name, work):
        library = work / builds.LIBRARY
        _compile(command(torch, chosen, library), work)
        library.chmod(0o644)
        work.chmod(0o755)
        made = datetime.now(UTC).isoformat(timespec="seconds")
        without = _compile_cuda(torch, chosen, work / builds.CUDA_LIBRARY)
        cuda = "" if without or not torch.cuda else builds.digest_of(work / builds.CUDA_LIBRARY)
        done = Build(work, torch.key, builds.digest_of(library), torch.python, _version(chosen), made, cuda, without)
        builds.write_manifest(done)
        notes.forget_failure(place, torch.key)
        return _enter(done, name, place / torch.key.directory)


@contextlib.contextmanager
def _workplace(place: Path, *, private: bool) -> Iterator[tuple[Path, Path]]:
    """A new directory in it, where things are made before they get their names: its name, and a path that stays.

    Where the place is another user's, the name may soon be that of another directory, with links in it; the path is for
    this process and those it starts.
    """
    with contextlib.ExitStack() as opened:
        try:
            if not private:
                place.mkdir(mode=0o755, parents=True, exist_ok=True)
            name = Path(tempfile.mkdtemp(prefix=notes.BUILDING, dir=place))
            opened.callback(shutil.rmtree, name, ignore_errors=True)
            work = private_place.opened(opened, name)
        except OSError as error:
            raise UsageError(f"{place} cannot be written: {error.strerror or error}") from None
        os.set_inheritable(work, True)
        yield name, Path(f"/proc/self/fd/{work}")


def _compile(arguments: list[str], scratch: Path) -> None:
    try:
        done = subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMPILE_SECONDS,
            check=False,
            close_fds=False,  # paths may lead through a descriptor that is to be inherited: `builder`
            env={**os.environ, "TMPDIR": str(scratch)},  # what a killed compiler leaves goes with it
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildFailed(f"{arguments[0]} could not compile the observer: {error}") from None
    if done.returncode != 0:
        raise BuildFailed(
            f"{arguments[0]} could not compile the observer. It needs C++20 (gcc 10, clang 12 or later).\n"
            f"{done.stderr[-3000:]}\nThe command was: {shlex.join(arguments)}"
        )


def _compile_cuda(torch: Torch, chosen: list[str], library: Path) -> str:
    """Why a torch with CUDA gets no part for it, which the rest does without. Empty: it has one, or needs none."""
    if not torch.cuda:
        return ""
    headers = cuda_headers(torch)
    if headers is None:
        return f"the headers of CUDA {torch.cuda} (cuda_runtime_api.h) are not installed where the observer was built"
    try:
        _compile(cuda_command(torch, chosen, library, headers), library.parent)
    except BuildFailed as error:
        return f"its part for CUDA could not be compiled: {str(error)[-1000:]}"
    library.chmod(0o644)
    return ""


def _version(chosen: list[str]) -> str:
    done = _answer([*chosen, "--version"])
    return (done.stdout.splitlines() or [chosen[0]])[0]


def _enter(built: Build, name: Path, directory: Path) -> Build:
    """Rename the finished directory to its place. One that is there is moved away first; a loaded one stays usable.

    Raises DeniedError where that name was another directory's by then.
    """
    old = Path(tempfile.mkdtemp(prefix=".old-", dir=directory.parent))
    try:
        with contextlib.suppress(FileNotFoundError):
            directory.rename(old)  # which is empty; beside it, since a rename elsewhere can be kept waiting by anybody
        name.rename(directory)
    finally:
        shutil.rmtree(old, ignore_errors=True)
    if not os.path.samestat(directory.lstat(), built.path.stat()):
        raise DeniedError(f"{directory} is not what was built: who owns {directory.parent} exchanged it")
    return replace(built, path=directory)


def known(places: list[Path]) -> list[tuple[Build | None, Path, str]]:
    """Every build in these places: (build, its directory, why it cannot be used or empty)."""
    found: list[tuple[Build | None, Path, str]] = []
    current = sources.digest()
    for place in places:
        for directory in builds.entries(place, "torch-"):
            try:
                one = builds.read(directory)
                builds.check(one, one.key)
                stale = one.key.sources != current
                found.append((one, directory, "of another version of profclient" if stale else ""))
            except builds.Unusable as error:
                found.append((None, directory, str(error)))
    return found

"""The observer that comes by itself: built by a real daemon for a process that has none, and where it does not."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from profd.kernel.identity import unreadable
from profd.limits import OBSERVER_BUILD_ALONE_SECONDS
from profd.trust.identify import start_ticks
from profproto.v1 import capture_pb2 as pb

from tests.integration.torch_observer.test_through_daemon import RANGED, calls, check_steps
from tests.support.attached import Attached, Captures, attached
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.long import long
from tests.support.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler"),
]
NONE = "no operators are recorded, because there is no observer of them for this torch"
BUILD_SECONDS = OBSERVER_BUILD_ALONE_SECONDS  # at nice 19: a busy host decides
NOBODY = 65534
TWO_USERS = os.geteuid() == 0 and not unreadable(NOBODY, NOBODY)
OWNER = NOBODY if TWO_USERS else os.geteuid()
SWITCH: dict[str, Any] = {"user": OWNER, "group": OWNER, "extra_groups": []} if TWO_USERS else {}


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    """Root's for every user, where there can be two of them."""
    pytest.importorskip("torch", reason="needs torch")
    with running_daemon(environ={"PROFD_TORCH_BUILD": "auto"}, user=not TWO_USERS) as found:
        yield found


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of the job's owner."""
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as made:
        os.chown(made, OWNER, -1)
        yield Path(made)


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Of a process for whose torch there is no build anywhere."""
    return {"PROFD_TORCH_DIR": str(folder / "none"), "XDG_CACHE_HOME": str(folder / "cache"), **more}


def stored(daemon: RunningDaemon, job: Attached, **options: object) -> pb.TargetStatus:
    captures = Captures(daemon)
    capture = captures.recording(job.pid, **options)
    job.counts_on()
    [target] = captures.stop(capture).targets
    return target


def hastened(daemon: RunningDaemon) -> bool:
    """True. A build leaves the processors to others, and may take an hour: root gives it its share."""
    for child in psutil.Process(daemon.process.pid).children() if os.geteuid() == 0 else ():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
            if "profclient.torch.builder" in child.cmdline() and child.nice() > 0:
                os.setpriority(os.PRIO_PGRP, child.pid, 0)
                Path(f"/proc/{child.pid}/autogroup").write_text("0")
    return True


def first_line(daemon: RunningDaemon, job: Attached) -> str:
    """What a capture of it answers first."""
    target = stored(daemon, job)
    assert target.state in (pb.STATE_STORED, pb.STATE_PARTIAL), target.message
    assert target.not_honoured[0] == f"torch: {target.message}"
    return str(target.message)


def estimated(daemon: RunningDaemon, job: Attached) -> list[str]:
    request = pb.EstimateCaptureRequest(
        selector=pb.Selector(pids=[job.pid]), options=pb.Options(duration_ns=10**9, shapes=True)
    )
    [found] = Captures(daemon).call("EstimateCapture", request).targets
    return list(found.not_honoured)


def listed(job_environ: dict[str, str]) -> str:
    """What `profctl torch list` says to the owner of the process."""
    done = subprocess.run(
        [Path(sys.executable).with_name("profctl"), "torch", "list"],
        env={**os.environ, **job_environ},
        capture_output=True,
        text=True,
        check=True,
        **SWITCH,
    )
    return done.stdout


def traps(folder: Path) -> tuple[Path, dict[str, str]]:
    """An environment in which whatever is run by name, or any Python or any program, leaves a mark."""
    folder.mkdir()
    mark = folder / "ran"
    assert not mark.exists()
    for name in ("c++", "g++", "clang++", "cc1plus", "as", "ld", "collect2", "python", "python3"):
        program = folder / name
        program.write_text(f"#!/bin/sh\necho {name} >> {mark}\nexit 1\n")
        program.chmod(0o755)
    source = folder / "preloaded.c"
    source.write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n__attribute__((constructor)) static void run(void) {\n"
        f'if (!getenv("PROFD_TRAP")) fputs("preloaded", fopen("{mark}", "a"));\n}}\n'
    )
    subprocess.run(["c++", "-x", "c", "-shared", "-fPIC", "-o", folder / "preloaded.so", source], check=True)
    (folder / "startup.py").write_text(f"open({str(mark)!r}, 'a').write('startup')")
    (folder / "sitecustomize.py").write_text(
        f"import os\nif os.environ.get('PROFD_TRAP') is None: open({str(mark)!r}, 'a').write('site')"
    )
    return mark, {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "CXX": str(folder / "c++"),
        "COMPILER_PATH": str(folder),
        "GCC_EXEC_PREFIX": f"{folder}/",
        "CPLUS_INCLUDE_PATH": str(folder),
        "PYTHONSTARTUP": str(folder / "startup.py"),
        "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}",
        "LD_PRELOAD": str(folder / "preloaded.so"),
        "PROFD_TRAP": "here",  # the process itself is to run
    }


def test_a_process_without_one_gets_one_and_the_next_capture_uses_it(daemon: RunningDaemon, home: Path) -> None:
    folder = home / "-a 'quoted' \"path\""
    folder.mkdir()
    os.chown(folder, OWNER, -1)
    mark, poisoned = traps(home / "traps")
    environ = environment(folder, **poisoned)
    uid = OWNER if TWO_USERS else None
    with attached(daemon, home, RANGED, environ=environ, uid=uid) as job:
        assert first_line(daemon, job) == f"{NONE} (it is being built: profctl torch list)"
        until(lambda: "being built" in listed(environ) or not estimated(daemon, job), "the list has it", BUILD_SECONDS)
        until(lambda: hastened(daemon) and not estimated(daemon, job), "the estimate misses nothing", BUILD_SECONDS)
        target = stored(daemon, job, shapes=True, memory=True)
        assert target.state == pb.STATE_STORED, target.message
        assert not target.not_honoured, list(target.not_honoured)
        assert not target.message
        check_steps(calls(daemon, target.trace))
    assert not mark.exists(), mark.read_text()
    place = folder / "cache" / "profd" / "torch"
    [made] = place.iterdir()
    assert made.name.startswith("torch-")
    assert {path.stat().st_uid for path in (place, made, *made.iterdir())} == {OWNER}
    assert place.stat().st_mode & 0o777 == 0o700
    assert "being built" not in listed(environ)


def fresh(environ: dict[str, str]) -> Iterator[RunningDaemon]:
    pytest.importorskip("torch", reason="needs torch")
    with running_daemon(environ=environ) as found:
        yield found


@pytest.fixture(scope="module")
def idle() -> Iterator[RunningDaemon]:
    """A daemon that builds nothing."""
    yield from fresh({"PROFD_TORCH_BUILD": "off"})


@pytest.fixture(scope="module")
def toolless() -> Iterator[RunningDaemon]:
    """A daemon on whose PATH there is no compiler."""
    yield from fresh({"PROFD_TORCH_BUILD": "auto", "PATH": "/nowhere"})


def test_build_off(idle: RunningDaemon, tmp_path: Path) -> None:
    with attached(idle, tmp_path, RANGED, environ=environment(tmp_path)) as job:
        assert first_line(idle, job) == f"{NONE} (build it once for this torch: profctl torch build)"
        assert not (tmp_path / "cache").exists()


def test_without_a_compiler_it_says_so_and_is_not_tried_again(toolless: RunningDaemon, tmp_path: Path) -> None:
    environ = environment(tmp_path)
    with attached(toolless, tmp_path, RANGED, environ=environ) as job:
        assert "being built" in first_line(toolless, job)
        until(lambda: "no C++ compiler" in estimated(toolless, job)[0], "the estimate says why")
        assert "could not be built: no C++ compiler was found" in first_line(toolless, job)
        assert "no C++ compiler" in listed(environ)
        place = tmp_path / "cache" / "profd" / "torch"
        [note] = place.iterdir()
        before = note.stat().st_mtime_ns
        assert "no C++ compiler" in first_line(toolless, job)
        assert note.stat().st_mtime_ns == before
        assert [path.name for path in place.iterdir()] == [note.name]


@pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces take root")
def test_a_process_with_other_mounts_is_told_to_build_in_its_image(daemon: RunningDaemon, tmp_path: Path) -> None:
    apart = f"import ctypes\nassert ctypes.CDLL(None).unshare({0x00020000}) == 0\n" + RANGED
    with attached(daemon, tmp_path, apart, environ=environment(tmp_path)) as job:
        assert "build it in its image: profctl torch build --into" in first_line(daemon, job)
        assert not (tmp_path / "cache").exists()


# In mounts of its own, where what is read-only to it is the user's to write.
APART = """
import asyncio, os, sys
from profd.observers.builder import build
from profd.observers.torch_of import Wanted
cache, pid, ticks, mounts, version, git, abi, home = sys.argv[1:]
wanted = Wanted(version, git, abi == "True", "", home, cache, os.geteuid(), os.getegid(), int(pid), int(ticks), mounts)
print(asyncio.run(build(wanted, change_identity=False)))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces take root")
@long
def test_a_service_with_read_only_mounts_goes_through_the_targets_root(home: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    os.chown(home, os.geteuid(), -1)
    package = Path(torch.__file__).parent
    key = [torch.__version__, torch.version.git_version, torch._C._GLIBCXX_USE_CXX11_ABI]

    def said(pid: int) -> str:
        mount = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
        apart = ["unshare", "-m", "--propagation", "private", "sh", "-c", mount, "sh", str(home)]
        ticks = start_ticks(os.getpid())
        wanted = [
            str(home / "cache"),
            str(pid),
            str(ticks),
            os.readlink("/proc/self/ns/mnt"),
            *map(str, key),
            str(package),
        ]
        command = [*apart, sys.executable, "-c", APART, *wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 and "mount" in done.stderr:
            pytest.skip(f"no mounts can be made here: {done.stderr}")
        return str(done.stdout + done.stderr)

    assert "Read-only" in said(0)
    assert not (home / "cache").exists()
    assert "why=''" in said(os.getpid())
    [made] = (home / "cache" / "profd" / "torch").iterdir()
    assert {path.name for path in made.iterdir()} == {"observer.so", "build.json"}

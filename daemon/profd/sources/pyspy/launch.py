"""Becomes py-spy, confined and tied to the daemon. Run by `tool.spawn` in an interpreter without site-packages.

Arguments: PARENT MEMORY_BYTES TARGET UID GID LISTENER CORES GROUP py-spy …

The daemon has threads, so nothing may run in its child between fork and exec; what must be set there is set here. The
kernel interrupts py-spy when the daemon is killed, by whatever means; py-spy lets go of the target and ends by itself.
A kill could leave a target stopped that py-spy was just attaching to.

py-spy takes hostile memory apart, so nothing of the daemon's rights is left to
it: docs/security.md, "Samplers". UID and GID are -1 where the daemon has no
other to give. Standard input brings the secret of the one exec, then the filter
and one that asks nothing, if that would do, each after its length. LISTENER is the
descriptor that tells where the filter's questions are, to the warden or to the
daemon; -1 for none. CORES has the numbers of those that it may run on, with commas; empty for any.
GROUP is the directory of the cgroup that bounds it together with its user's others; empty for the daemon's.
"""

# Every import is time before the first sample: nothing here needs typing or contextlib.

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import sys

from profd.kernel import capabilities, joining

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_EXECVEAT = {"x86_64": 322, "aarch64": 281}
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FILTER_FLAG_NEW_LISTENER = 8
_AT_EMPTY_PATH = 0x1000

ARGUMENTS = 8  # before the command

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> None:
    """Give up what a sampler may not have and become the command; ends with status 1 and a reason if it cannot."""
    command = arguments[ARGUMENTS:]
    program = _opened(command[0])
    _execute(program, command, confined(arguments[:ARGUMENTS]))


def confined(arguments: list[str]) -> int:
    """Give up what a sampler may not have: the secret of the one exec. Ends with status 1 and a reason if it cannot."""
    parent, memory_bytes, target, uid, gid, listener = (int(value) for value in arguments[:6])
    enter(arguments[7])
    stay_on(arguments[6])
    secret, filters = _told()
    _limit(memory_bytes)
    os.chdir("/")
    _become(uid, gid)
    try:
        able = _give_up_capabilities(target)
    except OSError as error:
        raise _failure("give up its capabilities", error.strerror) from None
    if not able and os.path.exists(f"/proc/{target}"):
        who = f"uid {os.geteuid()}"
        sys.exit(f"Error: Permission denied: the kernel lets {who} not read process {target} without CAP_SYS_PTRACE")
    # Python's handler would only note it: a wait for leave to exec that begins right after it would go on for ever.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)  # a change of identity clears it
    if os.getppid() != parent:  # it died before the line above
        sys.exit(1)
    # Python ignores this one, py-spy would inherit that and fail in other words.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    _forbid(filters, listener)
    return secret


def enter(group: str) -> None:
    """Its cgroup, to which all counts that it takes from here on. Ends with status 1 and a reason if it cannot."""
    try:
        joining.join(group)
    except OSError as error:
        raise _failure(f"join the cgroup {group}", error.strerror) from None


def stay_on(cores: str) -> None:
    """Run on these cores alone, by their numbers with commas; empty: on any."""
    try:
        os.sched_setaffinity(0, map(int, cores.split(",")) if cores else os.sched_getaffinity(0))
    except OSError:
        return  # all of them were taken from the daemon since it began: what is left is as good


def _told() -> tuple[int, list[bytes]]:
    """The secret and the filters, from standard input, which is nothing from then on."""
    with open(0, "rb") as said:
        secret = said.read(8)
        filters = [said.read(int.from_bytes(said.read(4), "little")) for _ in range(2)]
    os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)  # takes the place of it
    return int.from_bytes(secret, "little"), filters


def _opened(path: str) -> int:
    """The program, before the identity changes: it may lie where only the daemon may go."""
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise _failure(f"open {path}", error.strerror) from None


def _limit(memory_bytes: int) -> None:
    # Under pressure the kernel is to take a sampler, never the daemon or the job. Its user may write there, too.
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass
    for limit, value in (
        (resource.RLIMIT_FSIZE, 0),  # what it writes goes through pipes
        # Not the address space: with native frames py-spy maps the libraries of its target, gigabytes of them.
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(limit)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (allowed, allowed))


def _become(uid: int, gid: int) -> None:
    """Another identity for good, with the capabilities of this one for the moment."""
    capabilities.bound(1 << capabilities.SYS_PTRACE | capabilities.GUARD)
    if uid != -1:
        try:
            capabilities.become(uid, gid)
        except OSError as error:
            raise _failure(f"become uid {uid}, gid {gid}", error.strerror) from None
    _must("set no_new_privs", _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def _give_up_capabilities(target: int) -> bool:
    """CAP_SYS_PTRACE alone where it takes that to read the target. False: it is not to be had.

    Else the one that guards: at no moment is it without any, so that its user never opens or traces it.
    """
    held = capabilities.permitted()
    guard, reading = held & capabilities.GUARD, held & 1 << capabilities.SYS_PTRACE
    capabilities.hold(permitted=guard | reading, effective=0)
    able = _open_to_anybody(target)
    capabilities.keep(guard if able else reading)
    return able or bool(reading)


def _open_to_anybody(target: int) -> bool:
    """The kernel's own answer for this identity with nothing in effect: the rule of process_vm_readv(2)."""
    try:
        os.close(os.open(f"/proc/{target}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _forbid(filters: list[bytes], conversation: int) -> None:
    """Leave only the calls of `filter`, and tell who answers them where its questions are."""
    asking, quiet = filters
    found = -1 if conversation == -1 else _filter(asking, _SECCOMP_FILTER_FLAG_NEW_LISTENER)
    if found < 0 and quiet:  # somebody listens already, or nobody is to: threads are not counted
        _must("forbid itself system calls (seccomp)", _filter(quiet, 0))
        return
    _must("forbid itself system calls (seccomp)", min(found, 0))
    os.write(conversation, f"{os.getpid()} {found}".encode())
    if not os.read(conversation, 1):  # the exec closes what has to be taken over before
        raise _failure("be watched", "who listens has ended")
    os.close(conversation)


def _filter(program: bytes, flags: int) -> int:
    steps = ctypes.create_string_buffer(program)
    argument = struct.pack("@HP", len(program) // 8, ctypes.addressof(steps))
    words = (_SECCOMP[os.uname().machine], _SECCOMP_SET_MODE_FILTER, flags)
    return int(_libc.syscall(*map(ctypes.c_long, words), argument))


def _execute(program: int, command: list[str], secret: int) -> None:
    """Become the program behind the descriptor, with an empty environment; the last exec there is."""
    arguments = (ctypes.c_char_p * (len(command) + 1))(*(os.fsencode(word) for word in command), None)
    environment = (ctypes.c_char_p * 1)(None)
    number, flags = ctypes.c_long(_EXECVEAT[os.uname().machine]), ctypes.c_long(_AT_EMPTY_PATH)
    _libc.syscall(number, ctypes.c_long(program), b"", arguments, environment, flags, ctypes.c_uint64(secret))
    raise _failure(f"run {command[0]} (a program, not a script)", os.strerror(ctypes.get_errno()))


def _must(what: str, result: int) -> None:
    if result != 0:
        raise _failure(what, os.strerror(ctypes.get_errno()))


def _failure(what: str, why: str | None) -> SystemExit:
    return SystemExit(f"Error: the sampler could not {what}: {why}")

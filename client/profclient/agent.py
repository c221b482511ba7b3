"""`attach`: makes this process known to the local daemon, which may then record it.

The work is done by a native thread (native/recorder/agent.h), which sleeps until the daemon speaks. This module finds
the daemon's socket, says who the process is, follows it through forks to its exit, and runs what recording needs
Python for: the hooks of tracers and adapters. Nothing here raises into the job.

Everything that a recording needs is imported by `attach`, on the thread that calls it, or by the import of a framework:
the program may be walking sys.modules when the agent's own thread runs hooks. And it is our own modules only: of the
standard library `attach` brings what is in tests/unit/profclient/agent/test_modules.py.
"""

from __future__ import annotations

import atexit
import os
import sys
from _thread import allocate_lock

from profclient.address import of_agents
from profclient.frameworks import watch
from profclient.labels import collectives_kept, labels, one_line
from profclient.thread_names import thread_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Options = Mapping[str, str]
    """Of an ARM: each option with its value ("" without one), `iterations`, `max_overhead`, `epoch`."""

try:
    from profclient import _recorder

    _missing = ""
except ImportError as error:  # a platform that it was not built for
    _recorder = None  # type: ignore[assignment]
    _missing = f"the native part of profclient cannot be loaded: {error}"

# Beside the module of native code; profclient.gpu and profclient.nvtx load them.
COLLECTOR = os.path.join(os.path.dirname(_recorder.__file__ if _recorder else __file__), "libprofd_cupti.so")
NVTX = os.path.join(os.path.dirname(COLLECTOR), "libprofd_nvtx.so")
NVTX_VARIABLE = "NVTX_INJECTION64_PATH"  # NVTX's own

EXIT_SECONDS = 30.0  # that a hook may keep the interpreter from ending
VERSION = "0.1.0"  # as in pyproject.toml; reading the installed one takes 20 ms

# What registers the hooks of an option.
_PROVIDERS = {
    "cuda": "profclient.gpu",
    "garbage": "profclient.garbage",
    "gpu_fallback": "profclient.torch",
    "nvtx": "profclient.nvtx",
    "stacks": "profclient.tracer",
    "c_calls": "profclient.tracer",
    "modules": "profclient.tracer",
    "torch": "profclient.torch",
    "memory": "profclient.torch",
    "flops": "profclient.torch",
    "iterations": "profclient.torch",
    "shapes": "profclient.torch",
}
_FRAMEWORKS = ("torch", "jax", "tensorflow")
_ADAPTER = "profclient.torch"  # imported with torch, which brings all that it needs
_NOT_PREPARED = (
    "torch had not been imported completely when the capture began; capture again, and where that does not help, "
    "because the program has import hooks of its own, call profclient.attach() after `import torch`"
)


class NotHonoured(Exception):
    """A sentence about what a hook cannot record here, or not all of."""


class _HookPair:
    """No dataclass: importing those takes longer than all of this module."""

    __slots__ = ("records_at_stop", "released", "rest", "start", "stop")

    def __init__(
        self,
        start: Callable[[Options], None],
        stop: Callable[[Options], None],
        records_at_stop: bool,
        released: Callable[[], None] | None,
        rest: Callable[[], None] | None,
    ) -> None:
        self.start = start
        self.stop = stop
        self.records_at_stop = records_at_stop
        self.released = released
        self.rest = rest


class Attachment:
    """The process as the daemon knows it. There is one, whatever number of times `attach` is called."""

    @property
    def state(self) -> str:
        """`looking` for a daemon, `connected`, `armed` (it records), `stopped`, `refused`, or `off`."""
        return _state()[0]

    @property
    def why(self) -> str:
        """A sentence about a state that is not `connected` or `armed`; may be empty."""
        return _state()[1]

    @property
    def epoch(self) -> int:
        """The epoch of the running recording, 0 without one."""
        return _state()[2]

    def __repr__(self) -> str:
        state, why, _ = _state()
        return f"<profclient: {state}{': ' if why else ''}{why}>"


_attachment = Attachment()
_hooks: dict[str, _HookPair] = {}
_not_imported: dict[str, str] = {}  # providers, with why
_lock = allocate_lock()  # of what is started and stopped
_active: dict[str, _HookPair] = {}  # that have been started, by option
_starting = ""  # the option whose hook starts now: a child that is forked meanwhile has to stop it
_options: dict[str, str] = {}
_begun = 0  # recordings whose hooks have been started
_not_honoured: list[str] = []
_why_off = "attach() was not called"
_registered = False
_ending = False
_told: dict[str, str] = {}


def attach(address: str | None = None, *, quiet: bool = False) -> Attachment:
    """Make this process known to the local daemon. Returns at once; never raises; costs nothing while idle.

    `address`: the daemon's socket (`unix:/run/profd/profd.sock`) where it is not at `PROFD_ADDRESS` or its usual
    places. Without a daemon one line is written to stderr (not with `quiet`), and the process attaches when one
    appears. `PROFD_ATTACH=0` in the environment makes this do nothing. Children made by fork attach by themselves. A
    second call changes nothing.
    """
    try:
        _attach(address, quiet, {})
    except Exception as error:
        _off(f"it cannot attach: {error}")
    return _attachment


def detach() -> None:
    """Undo `attach`: a recording is ended and its events are delivered; the daemon forgets the process."""
    if _state()[0] == "off":
        return
    _stop_hooks()
    _recorder.agent_stop("exit")
    _rest()
    _off("detach() was called")


def register_hook(
    option: str,
    start: Callable[[Options], None],
    stop: Callable[[Options], None],
    *,
    records_at_stop: bool = False,
    released: Callable[[], None] | None = None,
    rest: Callable[[], None] | None = None,
) -> None:
    """Register functions for the begin and the end of a recording with `option`. Called under the GIL on a thread of
    the agent's.

    `start` may raise: the sentence reaches the trace as not honoured. With `records_at_stop` the recorder goes on
    until `stop` has returned (a minute at most). `stop` is also called in a child that was forked meanwhile, and at
    exit. `released`: the daemon has everything it wants of the recording. `rest`: the seconds after it, which are
    compared with it, are over, too, and nothing may stay.
    """
    _hooks[option] = _HookPair(start, stop, records_at_stop, released, rest)


def records_at_stop(option: str) -> None:
    """Have the end of a recording wait for `stop`: for the `start` of a hook that learns this only then."""
    _hooks[option].records_at_stop = True


def records(option: str) -> bool:
    """The hook of `option` has started for the recording that runs, and has not been stopped."""
    return option in _active


def note(key: str, value: object) -> None:
    """A line of every STATUS of this recording (docs/agent-protocol.md), such as `stacks_from`.

    The last value of a key holds, but for `not_honoured`: there every sentence is kept.
    """
    text = one_line(str(value))
    if key == "not_honoured":
        _not_honoured.append(text.replace(";", ","))  # a semicolon would end the sentence for the daemon
        text = "; ".join(_not_honoured)
    _recorder.agent_note(key, text)


def finish(reason: str) -> None:
    """End the recording that runs because of `iterations` or `overhead`."""
    _recorder.agent_finish(reason)


def describe() -> None:
    """Tell the daemon what has changed about this process: a framework was imported, a new ability was found."""
    global _told
    now = _description()
    changed = {key: value for key, value in now.items() if _told.get(key) != value}
    if changed:
        _told = now
        _recorder.agent_describe(_lines(now), _lines(changed))


def hooks_begun() -> int:
    """The number of recordings whose hooks have started."""
    return _begun


def prepare() -> None:
    """Import what hooks need. On a thread of the program's, where an import is no surprise. Never raises.

    A module that cannot be imported takes only its own options with it: the answer to an ARM with one says why.
    """
    given = dict(_hooks)  # by others, who come first
    for provider in sorted({*_PROVIDERS.values()}):
        if _is_of_use(provider):
            _import(provider)
    _hooks.update(given)


def _is_of_use(provider: str) -> bool:
    """Whether a hook's module may be needed: each module is memory of a process that may never be recorded."""
    if provider == _ADAPTER:
        return "torch" in sys.modules
    return provider != "profclient.nvtx" or _has_nvtx()


def _has_nvtx() -> bool:
    """The program's NVTX has our library, from its start on: it asks the environment only once."""
    return os.environ.get(NVTX_VARIABLE) == NVTX


def start_hooks(options: dict[str, str]) -> None:
    """The Python part of an ARM with these options, after `prepare`; for recordings that a process makes of itself."""
    _armed(options)


def stop_hooks() -> list[str]:
    """Undo `start_hooks`: the sentences about what was not honoured."""
    _stop_hooks()
    _released()
    _rest()
    return list(_not_honoured)


# --- who and where ---


def _attach(address: str | None, quiet: bool, tuning: Mapping[str, int]) -> None:
    """`tuning`: other times than the protocol's, for tests."""
    global _told
    if os.environ.get("PROFD_ATTACH") == "0":
        return _off("PROFD_ATTACH=0 is set")
    if _missing:
        return _off(_missing)
    if _ending:
        return _off("the interpreter is ending")
    prepare()
    first = not _registered
    _register()
    _mark()
    _told = _description()
    _recorder.agent_start(sockets(address), _lines(_told), ",".join(_PROVIDERS), _call, quiet=quiet, **tuning)
    if first and os.environ.get("PROFD_CAPTURE"):
        _ask_as_told()
    return None


def _ask_as_told() -> None:
    from profclient.requests import ask_as_told

    _say(ask_as_told() or _number_steps())


def _say(sentence: str) -> None:
    """A line about what nobody could be told otherwise; empty: none."""
    try:
        if sentence:
            sys.stderr.write(f"profclient: {sentence}\n")
    except Exception:  # noqa: S110 - the program has closed it, or put something else there
        pass


def _number_steps() -> str:
    """Where a capture waits for a step, optimizers number them from torch's import on: empty, or why they cannot."""
    if "torch" not in sys.modules or _ADAPTER not in sys.modules or not _recorder.step_awaited():
        return ""
    from profclient.torch.steps import number

    return number()


def _mark() -> None:
    """Say that this process has an agent: CUDA's collector, where CUDA loads it, then starts none of its own."""
    os.environ["PROFD_ATTACHED_PID"] = str(os.getpid())


def sockets(address: str | None = None) -> tuple[bytes, ...]:
    """Paths of agent.sock, beside the sockets that profctl would try."""
    return tuple(os.fsencode(path) for path in of_agents(address))


def _description() -> dict[str, str]:
    described = {"agent": VERSION, "python": sys.version.split()[0], "framework": _framework(), "can": _abilities()}
    return {key: value for key, value in {**described, **labels(), "kept": collectives_kept()}.items() if value}


def _framework() -> str:
    """The imported frameworks, with their versions."""
    found = []
    for name in _FRAMEWORKS:
        try:  # past __getattr__: one that is loaded lazily stays as it is
            version = object.__getattribute__(sys.modules[name], "__dict__").get("__version__")
        except (KeyError, AttributeError):
            continue
        if version is not None:
            found.append(f"{name} {one_line(str(version))}")
    return ", ".join(found)


def _abilities() -> str:
    found = ["ranges", "stacks", "modules", "torch", "recall", "steps"]
    if os.path.exists(COLLECTOR):
        found.append("cuda")
    if _ADAPTER in sys.modules and _has_observer():
        found.append("observer")
    return ",".join(found)


def _has_observer() -> bool:
    """There is a build for this torch (`profctl torch build`). It is not loaded before it is used."""
    from profclient.torch import builds, observer

    try:
        return observer.find() is not None
    except (builds.Unusable, OSError, AttributeError):
        return False


def _lines(described: Mapping[str, str]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in described.items()).encode()


def _state() -> tuple[str, str, int]:
    if _missing:
        return "off", _missing, 0
    state, why, epoch = _recorder.agent_state()
    return (state, why, epoch) if state != "off" else (state, _why_off, epoch)


def _off(why: str) -> None:
    global _why_off
    _why_off = why


# --- through forks to the exit ---


def _register() -> None:
    global _registered
    if _registered:
        return
    _registered = True
    os.register_at_fork(after_in_child=_after_fork_in_child)
    if sys.version_info >= (3, 12):  # which warns of forks beside other threads
        os.register_at_fork(before=_recorder.agent_pause, after_in_parent=_recorder.agent_resume)
    watch(_FRAMEWORKS, _framework_imported)
    atexit.register(_at_exit)


def _framework_imported() -> None:
    if "torch" in sys.modules:
        _import(_ADAPTER)
        _say(_number_steps())
    describe()


def _after_fork_in_child() -> None:
    """The child is a process of its own, and nothing of it is recorded yet."""
    global _lock
    _lock = allocate_lock()  # a thread that is not here may have held the old one
    if _starting:  # by that thread: how far it came nobody knows
        _active.setdefault(_starting, _hooks[_starting])
        _started("")
    _stop_hooks()
    _rest()
    _mark()
    _recorder.agent_start_in_child()


def _at_exit() -> None:
    """Stop before the interpreter finalizes: after this no thread of ours enters Python."""
    global _ending
    _ending = True
    _stop_hooks(EXIT_SECONDS)
    _say_without_steps()
    _recorder.agent_stop("exit")
    _rest(EXIT_SECONDS)
    _off("the interpreter is ending")


def _say_without_steps() -> None:
    """Of a capture that waited for a step, where there were none. Optimizers bring torch._dynamo, launchers do not."""
    if "torch._dynamo" in sys.modules and _recorder.step_awaited() and not _recorder.steps_begun():
        _say(
            "PROFD_CAPTURE: no capture: no step was counted; torch.compile's own are none, so call profclient.step() "
            "in the loop"
        )


# --- hooks ---


def _call(name: str, text: str) -> None:
    """Called from the agent's own thread, with the ARM's body."""
    if name == "armed":
        _armed(_parse(text))
    elif name == "limited":
        _limit(text.split(","))
    elif name == "stopping":
        _stop_hooks()
    elif name == "released":
        _released()
    elif name == "rested":
        _rest()


def _parse(text: str) -> dict[str, str]:
    fields = dict(line.split("=", 1) for line in text.splitlines())
    options = dict(item.partition(":")[::2] for item in fields.pop("options", "").split(",") if item)
    return {**fields, **options}


def _armed(options: dict[str, str]) -> None:
    global _options, _begun
    describe()
    with _lock:
        if _ending:
            return
        # Nobody asks for these: collections, and a program's ranges where its NVTX has our library.
        _options = {**options, "garbage": "", **({"nvtx": ""} if _has_nvtx() else {})}
        _not_honoured.clear()
        _note_names()
        for option in _options:
            if (why := _start_hook(option)) and not _unasked(option):
                note("not_honoured", f"{option}: {why}")
            _recorder.agent_begun(option)
        _await_end()
        _recorder.agent_records_at_stop(any(pair.records_at_stop for pair in _active.values()))
        _begun += 1


def _note_names() -> None:
    try:
        note("thread_names", thread_names())
    except Exception:  # a program that has something else in the place of its threads goes without
        return


def _await_end() -> None:
    """Count steps from when everything that was asked for is recorded; where one has to be the first, step() does."""
    if "begin_step" not in _options:
        return _recorder.await_steps(int(_options.get("iterations") or 0), int(_options.get("at_least") or 0))
    first, begun = int(_options["begin_step"]), _recorder.steps_begun()
    if _active.keys() - {"iterations"} and begun > first:
        late = "all else that was asked for was ready too late"
        note("not_honoured", f"at_step: of steps {first} to {begun - 1} there are only ranges, {late}")
    return None


def _unasked(option: str) -> bool:
    """Steps are counted for what they say of the recording's cost, whether or not some are to end it."""
    return option == "iterations" and _options[option] == "0"


def _start_hook(option: str) -> str:
    """Empty, or why the option is not honoured."""
    provider = _PROVIDERS.get(option)
    if provider is None:
        return ""
    if provider == _ADAPTER and "torch" not in sys.modules:
        # profclient.step() counts iterations as well, and arrays of other libraries have shapes.
        missing = option not in ("iterations", "shapes") and _options[option] != "auto"
        return "this process has not imported torch" if missing else ""
    try:
        pair = _hooks.get(option)
        if pair is None:
            return _why_no_hook(provider)
        _started(option)
        pair.start(_options)
        _active[option] = pair
    except Exception as error:
        return one_line(str(error)) or type(error).__name__
    finally:
        _started("")
    return ""


def _started(option: str) -> None:
    global _starting
    _starting = option


def _why_no_hook(provider: str) -> str:
    if provider in _not_imported:
        return f"{provider} cannot be imported: {_not_imported[provider]}"
    if provider == "profclient.nvtx":
        return f"{NVTX_VARIABLE} did not name profd's library when this process attached"
    return _NOT_PREPARED if provider == _ADAPTER else "this version of profclient cannot record it"


def _import(name: str) -> None:
    try:
        __import__(name)
        _not_imported.pop(name, None)
    except Exception as error:
        _not_imported[name] = one_line(f"{type(error).__name__}: {error}")


def _limit(dropped: list[str]) -> None:
    with _lock:
        for word in dropped:
            option = "torch" if word == "ops" else word
            if option in _active:
                _stop_hook(option)


def _stop_hooks(timeout: float = -1) -> None:
    if not _lock.acquire(timeout=timeout):
        return  # a hook hangs; the interpreter shall not hang with it
    try:
        while _active:
            _stop_hook(next(reversed(_active)))  # the last one first: it may build on those before
    finally:
        _lock.release()


def _released() -> None:
    for pair in list(_hooks.values()):
        if pair.released is not None:
            pair.released()


def _rest(timeout: float = -1) -> None:
    """Nothing is compared with a recording any more: what stayed for that goes."""
    if not _lock.acquire(timeout=timeout):
        return
    try:
        for option, pair in list(_hooks.items()):
            if pair.rest is not None and option not in _active:
                pair.rest()
    finally:
        _lock.release()


def _stop_hook(option: str) -> None:
    pair = _active.pop(option)
    try:
        pair.stop(_options)
    except Exception as error:
        note("not_honoured", f"{option} could not be stopped: {error}")

"""Recording inside targets, the agent, the tracer, and the encoder for streamers; native. See native/recorder."""

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])
_Future = TypeVar("_Future")

# --- recording (native/recorder/*_py.cpp): what profclient.recording gives on ---

class record_function:  # noqa: N801
    """A range: context manager, and decorator of functions, coroutine functions and generators. See docs/sdk.md."""

    def __init__(self, name: str, /, **arguments: object) -> None: ...
    def __enter__(self) -> record_function: ...
    def __exit__(self, *exception: object) -> None: ...
    def __call__(self, function: _F, /) -> _F: ...
    @property
    def name(self) -> str: ...
    @property
    def recorded(self) -> bool:
        """It is open, and being recorded."""
    def end_on(self, future: _Future, /) -> _Future:
        """End when `future` (asyncio, concurrent, torch) is done, on whatever thread, not at the end of the block."""

def record_op(
    name: str,
    inputs: Sequence[object] | None = (),
    /,
    *,
    scope: int | None = None,
    sequence: int | None = None,
    forward_thread: int | None = None,
    debug_handle: int | None = None,
    asynchronous: bool = False,
) -> record_function: ...
def mirror(push: int, pop: int, /) -> None:
    """Tell functions at these addresses, `void(const char *)` and `void()`, of each range; 0, 0: no more."""

def range_push(name: str, /) -> None: ...
def range_pop() -> None: ...
def instant(name: str, /, **arguments: object) -> None: ...
def counter(name: str, value: float, /) -> None: ...
def on_collection(phase: str, info: dict[str, int], /) -> None:
    """For `gc.callbacks`: a range `gc: generation N` for each collection of 0.1 ms or more."""

def record_alloc(
    ptr: int,
    bytes: int,  # noqa: A002
    device_type: int = 0,
    device_index: int = -1,
    allocated: int | None = None,
    reserved: int | None = None,
) -> None: ...
def record_out_of_memory(
    bytes: int,  # noqa: A002
    device_type: int = 0,
    device_index: int = -1,
    allocated: int | None = None,
    reserved: int | None = None,
) -> None: ...
def record_backend_event(name: str, start_us: float, end_us: float, /, **arguments: object) -> None: ...
def note_step() -> bool:
    """An optimizer has made a step. False: not counted, because the program calls step() itself."""

def pause_steps() -> None:
    """Optimizers are watched no longer: the next note_step() begins a step and ends none."""

def number_steps() -> None:
    """Optimizers that are watched number the program's steps, until it calls step() or pause_steps()."""

def step_awaited() -> bool:
    """A capture of this process waits for one of its steps (PROFD_CAPTURE)."""

def steps_begun() -> int:
    """Steps that have a number: how often the program has called step(), or its optimizers' count."""

def await_steps(whole: int, least_ns: int = 0, /) -> None:
    """End the recording that runs after so many whole steps from now on; 0: do not."""

def step() -> int: ...
def step_exit(original: Any, code: CodeType, /) -> Any:
    """A stand-in for a method `__exit__`: it calls `original`, and notes a step where the caller runs `code`.

    Only the outermost such caller of a thread counts, and only where nothing was raised.
    """

def step_exit_stop(stand_in: Any, /) -> None:
    """From now on it calls the original, and no more."""

# --- functions of our other libraries (native/recorder/library_py.cpp) ---

class Library:
    """A shared object that stays loaded. Calls run without the GIL. OSError: it cannot be loaded.

    Arguments are ints, None, capsules (their pointers), bytes, or a bytearray to be written to.
    """

    def __init__(self, path: str) -> None: ...
    def call(self, name: str, /, *arguments: object) -> int:
        """Of a function that returns an int, or nothing of use."""
    def text(self, name: str, /, *arguments: object) -> str | None:
        """Of a function that returns text, or null."""
    def address(self, name: str, /) -> int: ...

# --- the recorder's life (native/recorder/control_py.cpp): for local captures and tests ---

def arm(arena_bytes: int = ..., strings_bytes: int = ..., sources: int = 1, epoch: int = 1) -> int:
    """Record into a new arena; its descriptor stays the recorder's. RuntimeError: why not.

    Bits of `sources`: 1 ranges, 2 Python, 4 ops, 8 GPU, 16 memory.
    """

def disarm() -> None: ...
def release() -> bool:
    """Let go of the arena. False: a thread is inside a write; call again."""

def tick() -> None: ...
def populate() -> None:
    """Make the whole arena resident: for measurements of what comes after the first touch."""

def sources() -> int: ...
def set_sources(sources: int, /) -> None: ...
def arena_fd() -> int: ...
def incarnation() -> int: ...
def totals() -> dict[str, int]:
    """`recorded` since the arm, and lost events by reason."""

# --- encoder (native/recorder/encoder*.cpp): arenas of other processes to event chunks ---

class Drainer:
    """Reads the arena behind a descriptor (docs/arena.md) and encodes its chunks (docs/wire-format.md).

    The writer of the arena is hostile: everything is copied, then checked. Not for several threads
    at once. `compress` is called with each body, without which chunks have codec 0; pass something
    that keeps its context, `lambda body: compressor.compress(body, ZstdCompressor.FLUSH_FRAME)`
    (backports.zstd, level 1): its result is used where it is shorter.

    Raises ValueError, which says what is wrong, when the descriptor is no sealed arena; OSError when
    it cannot be mapped. The descriptor is not closed and may be closed by the caller at once.
    """

    def __init__(self, fd: int, compress: Callable[[bytes], bytes] | None = None) -> None: ...
    incarnation: int
    epoch: int
    pid: int  # as the target sees itself
    chunk_count: int
    @property
    def recording(self) -> bool:
        """The target still records; once it is False, or the target is dead, `open_chunks` may be taken."""
    @property
    def recorded(self) -> int:
        """Events the target says it put into chunks that were sealed."""
    def sealed(self) -> list[tuple[int, int, int]]:
        """(index, stream, sequence) of the chunks that are sealed and not yet freed, by stream and sequence."""
    def open_chunks(self) -> list[tuple[int, int, int]]:
        """The same of chunks that are still open or whose thread ended: what `encode(..., open=True)` takes."""
    def encode(self, index: int, open: bool = False) -> bytes | None:  # noqa: A002
        """The chunk as it travels, header and all, at most 1 MiB; None: it holds no event, or is in another state.

        May be called again until `free`; the bytes then differ at most in the strings they bring.
        `open`: take it although it is not sealed; nothing more may come of its stream then.
        IndexError: there is no such chunk.
        """
    def free(self, index: int) -> None:
        """Give a chunk back to the target, after its ack. Only now its strings count as delivered.

        Open chunks stay what they are and are not named by `open_chunks` again.
        """
    @property
    def allocated(self) -> int:
        """Bytes that `keep_ahead` has allocated."""
    def keep_ahead(self, ahead: int, most: int, /) -> bool:
        """Allocate the memory that the target will want next, so that it is charged to this process's cgroup.

        As much as lets `ahead` bytes of it stand in free chunks, but `most` in all: whether that was in the way.
        """
    def give_back(self) -> None:
        """Free the memory of its strings and chunks, whoever maps them: when nothing more is wanted of it."""
    def losses(self) -> dict[str, int]:
        """What the target could not record, by reason (docs/wire-format.md), as of now, and `bad_chunk`:
        chunks whose own header is beyond use. Events of a chunk that cannot be read are counted in the chunk itself.
        """
    def close(self) -> None:
        """Unmap it. Everything but the plain attributes raises ValueError afterwards."""

# --- agent (native/recorder/agent_module.cpp): the control thread of this process; for profclient.agent ---

def agent_start(
    sockets: tuple[bytes, ...],
    hello: bytes,
    hooked: str,
    call: Callable[[str, str], None],
    quiet: bool = False,
    retry_first_ms: int = 1_000,
    retry_most_ms: int = 30_000,
    grace_ms: int = 15_000,
    after_ms: int = 5_000,
) -> None:
    """Start the control thread; nothing happens if it runs. RuntimeError: no thread could be had.

    `call(name, text)` is called on a thread of its own with "armed", "limited", "stopping", "released" or "rested" and
    the ARM's body ("limited": the options that are dropped), for recordings with an option in `hooked`
    (comma-separated). "rested": steps after a recording, which are watched for `after_ms` or longer, have been seen.
    """

def agent_stop(reason: str) -> None:
    """End it, and the recording with it; no call begins afterwards. Releases the GIL, waits for what runs."""

def agent_pause() -> None:
    """Before a fork: end the thread for a moment, without a word to the daemon."""

def agent_resume() -> None: ...
def agent_start_in_child() -> None: ...
def agent_describe(hello: bytes, changed: bytes) -> None:
    """Lines of HELLO from now on, and those of them that the daemon is to be told now."""

def agent_note(key: str, value: str) -> None: ...
def agent_begun(option: str, /) -> None:
    """A hooked option records now, or has said why it does not."""

def agent_finish(reason: str) -> None: ...
def agent_records_at_stop(does: bool) -> None: ...
def agent_state() -> tuple[str, str, int]:
    """(off, looking, connected, armed, stopped or refused; a sentence; the epoch or 0)."""

def agent_ask(lines: bytes) -> tuple[int, str]:
    """Ask the daemon for a capture of this process, with these lines of REQUEST: its number, or 0 and why not."""

def agent_ask_at(step: int, begins: bool, lines: bytes) -> None:
    """The same, once, at a step of the program's; `begins`: before it, and the recording begins there by itself."""

def agent_came_of(number: int, /) -> tuple[str, str] | None:
    """The capture's id, or why there is none; None: nothing yet."""

# --- tracer (native/recorder/tracer*.cpp): calls of Python functions; for profclient.tracer. All under the GIL ---

def tracer_begin(prefixes: list[str], c_calls: bool, modules: bool, but_caller: bool) -> int:
    """Record calls in the session that is live; Unix ns from when. RuntimeError: none records Python calls."""

def tracer_end() -> None:
    """Forget functions, modules and open calls. Events that still come are ignored."""

def tracer_c_calls(wanted: bool) -> None:
    """Record C functions from now on, or no more. Those that run then end with the function that called them."""

def tracer_pause() -> None:
    """Leave out what this thread does from now on, and end the call of the Python function that asks for it."""

def tracer_resume() -> None:
    """Record this thread's calls again, if it was paused."""

def tracer_statistics() -> dict[str, int]:
    """`events`, begun or ended, of this session or the last; `resynchronised`: ends that fitted no begin at the top;
    `functions` and `modules` known now.
    """

# CPython 3.11:
def tracer_hook(frame: object, event: str, arg: object) -> None:
    """The profile function of threads whose calls are recorded, as sys.getprofile() gives it to the program."""

def tracer_profilers() -> list[object]:
    """Profile functions, or objects of profilers, of other tools, one for each thread that has one."""

def tracer_install(but_caller: bool) -> None:
    """Set the profile function in all threads that have none, and in those that start from now on. No audit event."""

def tracer_remove() -> int:
    """Take it out of all threads; the number of those where another tool had taken over. No audit event."""

# CPython 3.12 and later, callbacks of sys.monitoring:
def tracer_on_start(code: object, offset: int, exception: object = ...) -> None: ...
def tracer_on_return(code: object, offset: int, value: object) -> None: ...
def tracer_on_unwind(code: object, offset: int, exception: object) -> None: ...
def tracer_on_call(code: object, offset: int, called: object, argument: object) -> None: ...
def tracer_on_c_return(code: object, offset: int, called: object, argument: object) -> None: ...
def tracer_on_c_raise(code: object, offset: int, called: object, argument: object) -> None: ...

# --- for other shared objects of ours ---

_api: object
"""A capsule with the address of writer.h's Api."""

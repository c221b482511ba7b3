"""NVTX ranges of an attached process: what the agent does where NVTX has loaded our library.

The library (native/nvtx) must be there before the program's first NVTX call: NVTX_INJECTION64_PATH names it, as under
`profctl run`. While nothing is recorded the program's ranges cost what they cost without any tool.
"""

from __future__ import annotations

from profclient import _recorder
from profclient.agent import NVTX, NotHonoured, register_hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from profclient.agent import Options


_library: _recorder.Library | None = None


def start() -> None:
    """Record ranges and marks from now on. Raises NotHonoured."""
    if not _loaded().call("profd_nvtx_start", _recorder._api):
        raise NotHonoured("libprofd_nvtx.so and profclient are of different versions")


def stop() -> None:
    """No more; ranges that are open stay so."""
    if _library is not None:
        _library.call("profd_nvtx_stop")


def copies() -> int:
    """The number of libraries in this process that have handed their NVTX calls to ours."""
    return _loaded().call("profd_nvtx_copies")


def open_tool() -> tuple[int, int]:
    """Addresses of `void push(const char *)` and `void pop()` of another tool's NVTX. Raises NotHonoured."""
    library = _loaded()
    why = library.text("profd_nvtx_open")
    if why is not None:
        raise NotHonoured(why)
    return library.address("profd_nvtx_push"), library.address("profd_nvtx_pop")


def _loaded() -> _recorder.Library:
    global _library
    if _library is None:
        try:
            _library = _recorder.Library(NVTX)
        except OSError as error:
            raise NotHonoured(f"libprofd_nvtx.so cannot be loaded: {error}") from error
    return _library


def _armed(_options: Options) -> None:
    start()


def _stopping(_options: Options) -> None:
    stop()


register_hook("nvtx", _armed, _stopping)

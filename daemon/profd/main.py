"""`profd`: the command line of the daemon."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profclient import streams

from profd import __version__
from profd.errors import ProfdError
from profd.host import config, kept
from profd.host.config import Config, Given, Settings
from profd.kernel import heap
from profd.telemetry import logs

if TYPE_CHECKING:
    from profd.sources.kineto.senders import Senders


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon in the foreground until SIGTERM or SIGINT, or check its settings; the exit code."""
    streams.open_all()
    passed = kept.take()
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.json and not arguments.check:
        parser.error("--json belongs to --check")
    try:
        settings, given = config.load_with_origins(_flags(arguments), user=arguments.user, file=arguments.config)
        if arguments.check:
            return _check(settings, given, as_json=arguments.json)
        logs.setup(settings.log_level, settings.log_format)
        from profd.sources.kineto import senders  # --check needs none of it

        loaded = senders.load(settings.kineto_sender_filter, user=settings.user)
        read = functools.partial(config.load, _flags(arguments), user=arguments.user, file=arguments.config)
        return _run(_serve(settings, read, loaded, passed))
    except ProfdError as error:
        print(f"profd: {error}", file=sys.stderr)
        return 1


def _check(settings: Config, given: Mapping[str, Given], *, as_json: bool) -> int:
    from profd.host.check import report  # the daemon itself needs none of it

    return report(settings, given, as_json=as_json)


async def _serve(
    settings: Config, read: Callable[[], Config], senders: Senders | None = None, passed: kept.Kept | None = None
) -> int:
    # Sources start their tools with fork and exec; gRPC's fork handlers would only slow that and complain.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    # It writes to stderr itself, a line for each call that a client sends broken: a hundred a second.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    heap.keep_little()
    with _built_for_good():
        # Imported late: `profd --version` and usage errors need none of it.
        from profd.service.assembly import Daemon

        daemon = Daemon(settings, read, senders, passed)
        await daemon.open()
    await daemon.run_until_stopped()
    return 0


@contextlib.contextmanager
def _built_for_good() -> Iterator[None]:
    """The garbage collector looks at what is built here neither meanwhile, when it would find nothing, nor later."""
    gc.disable()
    try:
        yield
        gc.collect()
        gc.freeze()
    finally:
        gc.enable()


def _run(main: Coroutine[Any, Any, int]) -> int:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return int(uvloop.run(main))


def _flags(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was given, in the shape of the settings file."""
    given = vars(arguments)
    flags = {name: given[name] for name in Settings.__struct_fields__ if given.get(name) is not None}
    kineto: dict[str, Any] = {}
    if arguments.kineto_socket_dir is not None:
        kineto["socket_dir"] = arguments.kineto_socket_dir
    if arguments.no_kineto_abstract:
        kineto["abstract"] = False
    return {**flags, "kineto": kineto} if kineto else flags


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="profd",
        description="Profiles running processes on this host on demand; `profctl` talks to it.",
        epilog="Every flag can stand in the file or the environment, too: docs/configuration.md.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"profd {__version__}")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings (default: /etc/profd/profd.toml if it exists)"
    )
    parser.add_argument(
        "--check", action="store_true", help="say whether a daemon with these settings would start here, and start none"
    )
    parser.add_argument("--json", action="store_true", help="what --check finds, as JSON")
    parser.add_argument("--user", action="store_true", help="serve only your own processes, without privileges")
    parser.add_argument("--state-dir", metavar="DIR", help="traces, records and the audit log")
    parser.add_argument("--socket", metavar="PATH", help="gRPC socket; control.sock lies beside it")
    parser.add_argument("--socket-group", metavar="GROUP", help="only this group (and root) may connect")
    parser.add_argument("--metrics", metavar="HOST:PORT", help='Prometheus endpoint, or "off"')
    parser.add_argument("--store-bytes", metavar="SIZE", help='bound of the store, such as "20GiB"')
    parser.add_argument("--workers", type=int, metavar="N", help="worker processes")
    parser.add_argument("--worker-user", metavar="USER", help="whom workers run as (root mode)")
    parser.add_argument("--admin-group", metavar="GROUP", help="its members may profile and read everything")
    parser.add_argument("--kineto-socket-dir", metavar="DIR", help="KINETO_IPC_SOCKET_DIR of the targets")
    parser.add_argument("--no-kineto-abstract", action="store_true", help="do not take kineto's abstract socket name")
    parser.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")
    parser.add_argument("--log-format", metavar="FORMAT", help="json, text or auto (text on a terminal)")
    return parser


if __name__ == "__main__":
    sys.exit(main())

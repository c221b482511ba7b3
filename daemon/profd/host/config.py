"""The daemon's settings: flags over `PROFD_*` variables over the file over defaults.

`docs/configuration.md` describes every key; a test compares it with `Settings`.
Every layer is checked by itself, so that an error names its layer.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from profclient import address

from profd.errors import BadInput
from profd.host import variables
from profd.limits import ARENA_BYTES_MAX, ARENA_STRINGS_BYTES, PM_INTERVAL_US, STORE_BYTES_DEFAULT, MiB
from profd.model.decodable import decodable

SYSTEM_FILE: Final = Path("/etc/profd/profd.toml")
METRICS_DEFAULT: Final = "127.0.0.1:9477"
SOCKET_PATH_BYTES_MAX: Final = 107  # sun_path without its final zero
WORKERS_MAX: Final = 64
_ARENA_LEAST: Final = ARENA_STRINGS_BYTES + 8 * MiB  # the strings, and chunks for some threads
_AT: Final = re.compile(r"`\$\.([\w.]+)`")  # the place in an error of msgspec
_BARE: Final = re.compile(r"\d+|true|false", re.IGNORECASE)
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)


class KinetoSettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[kineto]`: the sockets at which PyTorch processes find the daemon."""

    socket_dir: str = ""  # empty: `kineto` beside the gRPC socket
    abstract: bool = True  # also the abstract name that libkineto tries by itself
    sender_filter: str = "auto"  # in the kernel, before the sockets' queues, where it can be had; or "off"


class SdkSettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[sdk]`: processes that attach themselves."""

    arena_bytes: int | str = 64 << 20  # of memory in each process while it is recorded


class GpuSettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[gpu]`: recordings of whole GPUs."""

    collector: str = "native"  # of CUPTI's records, or "cupti-python": through that package, slow and able to deadlock
    cuda_graphs: str = "nodes"  # of a CUDA graph each node is recorded, or "whole": the graph as one
    detach: bool = False  # CUPTI leaves a process at the end of its recording; kills jobs that replay CUDA graphs
    pm_sampling_us: int = 0  # between samples of hardware counters, which hold the GPU's clocks; 0: none
    process_metrics: bool = False  # memory of each process on a GPU at the metrics' address, by pid


class TorchSettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[torch]`: the observer of PyTorch's operators."""

    build: str = "auto"  # for attached processes that have none, once for each torch and user; or "off"


class AuditSettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[audit]`: the log of users and their actions."""

    copy: str = "off"  # of each line, to "journald" or "syslog"


@decodable
class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The settings of the file and of the environment. Empty strings mean the default of the mode."""

    state_dir: str = ""
    socket: str = ""
    socket_group: str = ""  # who may connect; empty: everybody on the host
    metrics: str = ""  # "host:port" or "off"
    store_bytes: int | str = 0  # 0: the smaller of 20 GiB and 10 % of the filesystem
    workers: int = 2
    worker_user: str = ""
    admin_group: str = ""
    disabled_file: str = ""
    log_level: str = "info"
    log_format: str = "auto"  # json, text, auto: text on a terminal
    kineto: KinetoSettings = KinetoSettings()
    sdk: SdkSettings = SdkSettings()
    gpu: GpuSettings = GpuSettings()
    torch: TorchSettings = TorchSettings()
    audit: AuditSettings = AuditSettings()


_TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    "kineto": KinetoSettings,
    "sdk": SdkSettings,
    "gpu": GpuSettings,
    "torch": TorchSettings,
    "audit": AuditSettings,
}


@dataclass(frozen=True, slots=True)
class Config:
    """Settings with every default filled in."""

    user: bool  # --user: one uid, no privileges
    state_dir: Path
    socket: Path
    socket_group: str
    metrics: tuple[str, int] | None
    metrics_asked_for: bool  # a default that cannot be had in --user mode is no error
    store_bytes: int | None  # None: the default, by the size of the filesystem
    workers: int
    worker_user: str
    admin_group: str
    disabled_file: Path
    log_level: str
    log_format: str
    kineto_socket_dir: Path
    kineto_abstract: bool
    kineto_sender_filter: bool
    arena_bytes: int
    gpu_collector: str
    cuda_graphs: str
    gpu_detach: bool
    pm_sampling_us: int
    gpu_process_metrics: bool
    build_observers: bool
    audit_copy: str

    @property
    def agents(self) -> Path:
        """The socket that attached processes connect to."""
        return self.socket.with_name("agent.sock")

    @property
    def control(self) -> Path:
        """The socket that hands out tokens."""
        return self.socket.with_name("control.sock")

    @property
    def mode(self) -> str:
        """`user` or `root`, as `profctl doctor` shows it."""
        return "user" if self.user else "root"


def load(
    flags: Mapping[str, Any],
    environ: Mapping[str, str] = os.environ,
    *,
    user: bool = False,
    file: Path | None = None,
) -> Config:
    """The settings of this start. `flags` has the shape of `Settings`, with given values only.

    `file` None: the system's file if there is one (not with `user`). Raises
    BadInput naming the layer and the key.
    """
    return load_with_origins(flags, environ, user=user, file=file)[0]


# Of each setting the field of Config that has it.
FIELDS: Final = {
    **{name: name for name in Settings.__struct_fields__ if name not in _TABLES},
    "kineto.socket_dir": "kineto_socket_dir",
    "kineto.abstract": "kineto_abstract",
    "kineto.sender_filter": "kineto_sender_filter",
    "sdk.arena_bytes": "arena_bytes",
    "gpu.collector": "gpu_collector",
    "gpu.cuda_graphs": "cuda_graphs",
    "gpu.detach": "gpu_detach",
    "gpu.pm_sampling_us": "pm_sampling_us",
    "gpu.process_metrics": "gpu_process_metrics",
    "torch.build": "build_observers",
    "audit.copy": "audit_copy",
}


class Given(NamedTuple):
    """A value that is no default, as it was written, and the layer that has it."""

    value: Any
    source: str


def load_with_origins(
    flags: Mapping[str, Any], environ: Mapping[str, str] = os.environ, *, user: bool = False, file: Path | None = None
) -> tuple[Config, dict[str, Given]]:
    """As `load`, and the given values by key ("kineto.abstract" for one of a table)."""
    merged: dict[str, Any] = {}
    origins: dict[str, Given] = {}
    for source, layer, strict in (
        (*_file_layer(file, user), True),
        ("the environment", _environment_layer(environ), False),
        ("the command line", dict(flags), False),
    ):
        _convert(layer, source, strict=strict)
        origins |= {key: Given(value, source) for key, value in _flat(layer)}
        tables = {name: {**merged.get(name, {}), **layer.get(name, {})} for name in _TABLES}
        merged = {**merged, **layer, **tables}
    return _resolve(_convert(merged, "the settings", strict=False), environ, user), origins


def every_key() -> list[str]:
    """All settings, "kineto.abstract" for one of a table, in the order of the file."""
    top = [name for name in Settings.__struct_fields__ if name not in _TABLES]
    return [*top, *(f"{name}.{key}" for name, table in _TABLES.items() for key in table.__struct_fields__)]


def variable(key: str) -> str:
    """The variable of a setting: `PROFD_KINETO_ABSTRACT` for "kineto.abstract"."""
    return variables.PREFIX + key.replace(".", "_").upper()


def _flat(layer: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [
        pair
        for name, value in layer.items()
        for pair in ([(f"{name}.{key}", inner) for key, inner in value.items()] if name in _TABLES else [(name, value)])
    ]


def _file_layer(file: Path | None, user: bool) -> tuple[str, dict[str, Any]]:
    path = file or SYSTEM_FILE
    if file is None and (user or not path.exists()):
        return "no file", {}
    try:
        return str(path), tomllib.loads(path.read_text(encoding="utf-8"))
    except IsADirectoryError as error:
        raise BadInput(f"the configuration file {path} is a directory; name the file in it with --config") from error
    except OSError as error:
        raise BadInput(
            f"the configuration file {path} cannot be read: {error.strerror}. Correct its path, owner or mode."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"the configuration file {path} is not TOML: {error}. Correct it there.") from error


def _environment_layer(environ: Mapping[str, str]) -> dict[str, Any]:
    """`PROFD_STATE_DIR` and so on; `PROFD_KINETO_SOCKET_DIR` for `[kineto] socket_dir`. Raises BadInput."""
    names = {key: variable(key) for key in every_key()}
    variables.check(environ, names.values())
    layer: dict[str, Any] = {}
    for key, name in names.items():
        if value := environ.get(name):
            table, _, inner = key.rpartition(".")
            (layer.setdefault(table, {}) if table else layer)[inner] = value
    return layer


def _convert(layer: Mapping[str, Any], source: str, *, strict: bool) -> Settings:
    """`strict`: in TOML, which has types, "2" is no 2; variables and flags are text."""
    try:
        return msgspec.convert(layer, Settings, strict=strict)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"{source}: {error}.{_quoted(layer, str(error))} docs/configuration.md lists every key."
        ) from error


def _quoted(layer: Mapping[str, Any], error: str) -> str:
    """The fix for a number or a truth value in quotes."""
    path = _AT.search(error)
    value: Any = layer
    for name in path[1].split(".") if path else ():
        value = value.get(name) if isinstance(value, Mapping) else None
    if path is None or not isinstance(value, str) or not _BARE.fullmatch(value):
        return ""
    return f" Write {path[1].rpartition('.')[2]} = {value.lower()} without quotes."


def _resolve(settings: Settings, environ: Mapping[str, str], user: bool) -> Config:
    state_dir = _path(settings.state_dir) or (_user_state(environ) if user else Path("/var/lib/profd"))
    socket = _path(settings.socket) or (_user_socket(environ, state_dir) if user else Path("/run/profd/profd.sock"))
    config = Config(
        user=user,
        state_dir=state_dir,
        socket=socket,
        socket_group=settings.socket_group,
        metrics=_address(settings.metrics or METRICS_DEFAULT),
        metrics_asked_for=bool(settings.metrics) or not user,
        store_bytes=_size(settings.store_bytes, "store_bytes") or None,
        workers=settings.workers,
        worker_user=settings.worker_user,
        admin_group=settings.admin_group,
        disabled_file=_path(settings.disabled_file) or _disabled_file(state_dir, user),
        log_level=settings.log_level.lower(),
        log_format=settings.log_format,
        kineto_socket_dir=_path(settings.kineto.socket_dir) or socket.with_name("kineto"),
        kineto_abstract=settings.kineto.abstract,
        kineto_sender_filter=_auto("kineto.sender_filter", settings.kineto.sender_filter),
        arena_bytes=_size(settings.sdk.arena_bytes, "sdk.arena_bytes"),
        gpu_collector=settings.gpu.collector,
        cuda_graphs=settings.gpu.cuda_graphs,
        gpu_detach=settings.gpu.detach,
        pm_sampling_us=settings.gpu.pm_sampling_us,
        gpu_process_metrics=settings.gpu.process_metrics,
        build_observers=_auto("torch.build", settings.torch.build),
        audit_copy=settings.audit.copy,
    )
    _check(config)
    return config


def _check(config: Config) -> None:
    if not 1 <= config.workers <= WORKERS_MAX:
        raise BadInput(f"workers = {config.workers}: give 1 to {WORKERS_MAX}")
    if config.log_level not in ("debug", "info", "warning", "error"):
        raise BadInput(f"log_level = {config.log_level!r}: give debug, info, warning or error")
    if config.log_format not in ("auto", "json", "text"):
        raise BadInput(f"log_format = {config.log_format!r}: give auto, json or text")
    if not _ARENA_LEAST <= config.arena_bytes <= ARENA_BYTES_MAX:
        raise BadInput(
            f"sdk.arena_bytes = {config.arena_bytes}: give {_ARENA_LEAST >> 20} MiB to {ARENA_BYTES_MAX >> 20} MiB"
        )
    if config.gpu_collector not in ("native", "cupti-python"):
        raise BadInput(f"gpu.collector = {config.gpu_collector!r}: give native or cupti-python")
    if config.cuda_graphs not in ("nodes", "whole"):
        raise BadInput(f"gpu.cuda_graphs = {config.cuda_graphs!r}: give nodes or whole")
    if config.audit_copy not in ("off", "journald", "syslog"):
        raise BadInput(f"audit.copy = {config.audit_copy!r}: give off, journald or syslog")
    least, most = PM_INTERVAL_US
    if config.pm_sampling_us and not least <= config.pm_sampling_us <= most:
        raise BadInput(f"gpu.pm_sampling_us = {config.pm_sampling_us}: give {least} to {most}, or 0 for none")
    for path in (config.socket, config.control, config.agents):
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
            raise BadInput(f"the socket path {path} is longer than {SOCKET_PATH_BYTES_MAX} bytes; use a shorter one")


def _auto(key: str, word: str) -> bool:
    if word not in ("auto", "off"):
        raise BadInput(f"{key} = {word!r}: give auto or off")
    return word == "auto"


def _path(text: str) -> Path | None:
    return Path(text).expanduser().absolute() if text else None


def _user_state(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_STATE_HOME")
    return Path(base) / "profd" if base else Path.home() / ".local" / "state" / "profd"


def _user_socket(environ: Mapping[str, str], state_dir: Path) -> Path:
    runtime = environ.get("XDG_RUNTIME_DIR")
    return Path((runtime and address.in_runtime(runtime)) or state_dir / "profd.sock")


def _disabled_file(state_dir: Path, user: bool) -> Path:
    return state_dir / "disabled" if user else Path("/etc/profd/disabled")


def _address(text: str) -> tuple[str, int] | None:
    if text == "off":
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise BadInput(f'metrics = {text!r}: give "host:port", [address]:port for IPv6, or "off"')
    return host.strip("[]"), int(port)


def _size(value: int | str, key: str) -> int:
    if isinstance(value, int):
        size = value
    else:
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise BadInput(f'{key} = {value!r}: give bytes, or a size such as "20GiB" or "500MB"')
        number, unit, binary = match.groups()
        size = int(float(number) * (1024 if binary or not unit else 1000) ** " KMGT".index(unit.upper() or " "))
    if size < 0 or size > STORE_BYTES_DEFAULT << 20:
        raise BadInput(f"{key} = {value!r}: give 0 (the default) or a positive size")
    return size

"""A process that samples the hardware counters of one GPU through cupti-python: `python -m profd.gpu.pm_sampler JSON`.

Of its own because NVIDIA's library may crash or hang, and because its end is
the one sure sign that the counters are free again. It writes JSON lines: first
`{"ready": true}` or `{"error": code, "text": ...}`, then `{"samples": [[start,
end, [value of each metric, ...]], ...], "now": ...}` (the GPU's clock; `now` is
CLOCK_REALTIME when they had been decoded). It ends when its input does.
"""

from __future__ import annotations

import importlib
import json
import select
import sys
import time
from importlib import metadata
from typing import Any, Final

PACKAGE: Final = "cupti-python"
OLDEST: Final = (13, 3)
DECODE_SECONDS: Final = 0.2
SAMPLES_A_DECODE: Final = 2_000  # 18 KiB of this process's memory each, until they are decoded


class Unable(Exception):
    """Why not: a code of pm_sampling.PmState and the library's own words."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def main() -> None:
    """Sample until the input ends."""
    order = json.loads(sys.argv[1])
    try:
        collector = _started(order)
    except Unable as error:
        _say({"error": error.code, "text": str(error)})
        return
    _say({"ready": True})
    try:
        while not select.select([sys.stdin], [], [], DECODE_SECONDS)[0]:
            _decode(collector)
        collector.stop()
        _decode(collector)
    finally:
        collector.disable()


def _started(order: dict[str, Any]) -> Any:
    """A collector that samples. Raises Unable."""
    make = _maker(order["collector"])
    try:
        collector = make(order["device"])
        collector.enable()
        collector.configure(metrics=order["metrics"], sampling_interval=order["interval_ns"])
        collector.start()
    except PermissionError as error:
        raise Unable("no_privilege", str(error)) from error
    except ValueError as error:
        raise Unable("not_this_gpu", str(error)) from error
    except Exception as error:  # its own exceptions have no base that could be named without it
        raise Unable(_code_of(str(error)), f"{type(error).__name__}: {error}") from error
    return collector


def _code_of(text: str) -> str:
    """By the words of cupti-python 13.4; its exceptions of these have no types of their own."""
    for words, code in (("already enabled", "held"), ("nvperf", "no_nvperf"), ("driver", "no_driver")):
        if words in text:
            return code
    return "failed"


def _maker(name: str) -> Any:
    """The maker of a device's collector. Raises Unable where the package is not, or is too old."""
    module, _, attribute = name.partition(":")
    if module.partition(".")[0] == "cupti":
        _check_version()
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise Unable("no_package", str(error)) from error


def _check_version() -> None:
    try:
        found = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError as error:
        raise Unable("no_package", str(error)) from error
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST:
        raise Unable("old_package", f"{PACKAGE} {found}")


def _decode(collector: Any) -> None:
    found = [
        [sample.start_timestamp, sample.end_timestamp, [float(value) for value in sample.metric_values]]
        for sample in collector.decode(max_samples=SAMPLES_A_DECODE)
    ]
    if found:
        _say({"samples": found, "now": time.time_ns()})


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

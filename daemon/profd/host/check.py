"""The output of `profd --check`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from profd import __version__
from profd.host.config import Config, Given
from profd.host.doctor import Finding
from profd.host.preflight import findings


def report(config: Config, given: Mapping[str, Given], *, as_json: bool) -> int:
    """Print the settings and the findings; 0 where the daemon would start, else 1."""
    found = findings(config)
    problems = sum(finding.verdict == "problem" for finding in found)
    print(_json(config, given, found, problems == 0) if as_json else _text(config, given, found, problems))
    return 1 if problems else 0


def _text(config: Config, given: Mapping[str, Given], found: Sequence[Finding], problems: int) -> str:
    lines = [f"profd {__version__}, mode {config.mode}; settings beside the defaults:"]
    lines += [f"  {key} = {value!r}  ({source})" for key, (value, source) in given.items()] or ["  none"]
    for finding in found:
        lines.append(f"{finding.verdict:8} {finding.name:16} {finding.detail}")
        lines += [f"{'':8} {'':16} fix: {finding.fix}"] if finding.fix else []
    lines.append("profd would start" if not problems else f"profd would not start: {_counted(problems)}")
    return "\n".join(lines)


def _counted(problems: int) -> str:
    return "1 problem" if problems == 1 else f"{problems} problems"


def _json(config: Config, given: Mapping[str, Given], found: Sequence[Finding], ok: bool) -> str:
    checks = [{"name": of.name, "verdict": of.verdict, "detail": of.detail, "fix": of.fix} for of in found]
    settings = [{"key": key, "value": value, "from": source} for key, (value, source) in given.items()]
    return json.dumps({"ok": ok, "mode": config.mode, "settings": settings, "checks": checks}, indent=2)

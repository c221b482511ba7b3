"""`profctl explain`: Say what costs time in a trace: causes, evidence, what each costs at most."""

from __future__ import annotations

from typing import Any

import click

from profclient.cli.backend import traces
from profclient.cli.findings_view import print_findings
from profclient.cli.imported import say_whose_rank
from profclient.cli.options import json_option, window_options, window_query
from profclient.cli.output import emit_json
from profclient.errors import UsageError


@click.command()
@click.argument("trace", default="")
@click.option("--fail-on", "fail_on", multiple=True, metavar="ID", help="Exit with 1 if this is found; repeats.")
@window_options
@json_option
@click.pass_context
def explain(ctx: click.Context, /, trace: str, fail_on: tuple[str, ...], as_json: bool, **within: Any) -> None:
    """Say what costs time in a trace: each finding has a cause, evidence, and an upper bound of what it costs.

    Rules look at the training steps, the first one left out. A rule that cannot tell stays silent: no finding is an
    answer, too, and "not enough data" says what is missing. Causes come first, symptoms last. Bounds overlap, and do
    not add up. docs/answers.md has each rule and when it is wrong.

    With --step or --window it is about the steps that lie in that part; what the kernel counted is of the whole.

    TRACE may be a capture: late ranks come first (docs/ranks.md), then what is found in its traces, each finding once.

    \b
      profctl explain                                  # the latest trace
      profctl explain 06v1 --fail-on data-loading      # for CI: exit code 1 if it is found
    """
    with traces() as source:
        answer = source.ask("explain", trace, **window_query(within)).value()
        say_whose_rank(source, "explain", trace)
    _check_known(fail_on, answer)
    if as_json:
        emit_json(answer)
    else:
        print_findings(answer, trace)
    found = {one["id"] for one in answer["findings"]}
    ctx.exit(1 if found & set(fail_on) else 0)


def _check_known(ids: tuple[str, ...], answer: dict[str, Any]) -> None:
    known = [one["id"] for one in answer["looked"]]
    for one in ids:
        if one not in known:
            raise UsageError(f"there is no finding {one!r}; there are: {', '.join(known)}.")

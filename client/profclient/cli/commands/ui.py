"""`profctl ui`."""

from __future__ import annotations

import os
import re
import threading
import urllib.parse
from contextlib import ExitStack
from pathlib import Path

import click

from profclient.cli import browser
from profclient.cli.output import say
from profclient.errors import NotFoundError, UsageError
from profclient.loopback import COMMON, tunnel
from profclient.ui.asking import Library
from profclient.ui.server import UNUSED_SECONDS, PageServer

_PLACES = ("", "now", "captures")
_CAPTURES = "cf"  # ids begin so; those of traces with a digit
_HEARD_SECONDS = 1.0
_PAGE = re.compile(
    r"/(?:now|captures|(?:trace|capture|ranks|perfetto|compare/[0-9a-z]{1,32})/[0-9a-z]{1,32})?(?:\?[\w.=&%-]{0,500})?",
    re.ASCII,
)


@click.command()
@click.argument("what", metavar="[TRACE|CAPTURE|captures|now|URL]", default="")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option("--write", is_flag=True, help="Let the page begin and end captures, as you may. [it only reads]")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Serve at this port. [any that is free]")
@click.option("--store", type=click.Path(path_type=Path), help="The store in this directory, as of profctl --store.")
def ui(what: str, no_browser: bool, write: bool, port: int, store: Path | None) -> None:
    """Look at traces in a browser: findings, steps, flame graphs, tables, SQL, comparisons; and what runs now.

    profctl serves the page with your rights, on loopback, to your own processes, until Ctrl-C or until nobody has used
    it for 8 hours. It reads and changes nothing, unless you give --write. The browser gets in by a key that is good
    once. A colleague opens an address that you copy from the page with `profctl ui ADDRESS`.

    \b
      profctl ui                       # the list of traces
      profctl ui 06v1                  # straight to a trace
      profctl ui captures              # how each capture went
      profctl ui --write now           # what runs, and captures of it
      profctl ui 'http://127.93.7.40:40123/#/trace/06v1?step=12'
      profctl ui --store DIR           # without a daemon
    """
    store = store or click.get_current_context().find_root().obj
    if write and store is not None:
        raise UsageError("--write begins captures, and a store's folder has no processes: leave --store or it out.")
    if store is not None and not store.is_dir():
        raise NotFoundError(f"There is no store in {store}: name the daemon's state directory, or import a file first.")
    serve(store, page_of(what), port, no_browser=no_browser, write=write)


def serve(store: Path | None, page: str, port: int, *, no_browser: bool, write: bool = False) -> None:
    """Serve the page to the browser of this user, from `page` on, until Ctrl-C or until nobody uses it any more."""
    library = Library(store)
    try:
        server = PageServer(library, page, port, say=say, write=write)
    except OSError as error:
        raise UsageError(f"port {port} cannot be used: {error.strerror}; leave --port out.") from error
    serving = threading.Thread(target=server.serve, name="ui-serve")
    with server, ExitStack() as ending:
        serving.start()  # first: a browser of $BROWSER is waited for until it ends
        ending.callback(serving.join)
        ending.callback(server.stop)
        if no_browser or not browser.browse(server, ending):
            _print_address(server)
        else:
            say("The page is open in your browser.")
        say("profctl serves it until Ctrl-C.")
        library.prepare()
        while serving.is_alive():
            serving.join(_HEARD_SECONDS)  # a Ctrl-C just before a wait interrupts nothing, and is heard behind it
    say(f"Nobody used the page for {UNUSED_SECONDS / 3600:.0f} hours: it has ended. Run the command again.")


def _print_address(server: PageServer) -> None:
    """For a browser that is here, or, after ssh, where the user is."""
    afar = bool(os.environ.get("SSH_CONNECTION"))
    click.echo(f"{server.tunnel_url if afar else server.url}#key={server.keys.for_terminal()}")
    if afar:
        say("You came by ssh: run this on the machine that you came from, then open the address there:")
        say(f"  {tunnel(server.address, server.ports)}")
        say(f"It is good once, for 10 minutes. A browser on this machine finds {server.address} instead of {COMMON}.")
        return
    say("Open this address in a browser on this machine; it is good once, for 10 minutes.")
    say(f"From another machine: run this there first, then open it there, with {COMMON} instead of {server.address}:")
    say(f"  {tunnel(server.address, server.ports)}")


def page_of(what: str) -> str:
    """Where the page begins: whether there is such a trace the page says. Raises UsageError."""
    if "://" in what:
        page = urllib.parse.urlsplit(what).fragment
        if not _PAGE.fullmatch(page):
            raise UsageError("this address leads to no page of profctl ui; copy it from the browser as it is.")
        return page
    if what in _PLACES:
        return f"/{what}"
    page = f"/capture/{what}" if what[0] in _CAPTURES else f"/trace/{what}"
    if not _PAGE.fullmatch(page):
        raise UsageError(f"{what!r} is no id of a trace or a capture; `profctl list` lists traces.")
    return page

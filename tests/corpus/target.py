"""Processes that the corpus is made of: `python -m tests.corpus.target KIND [DIRECTORY]`, with `PROFD_ADDRESS` set.

They are real where a real one can be held in the phase that is wanted, and play a part where it cannot. Each prints
`ready`, and what happens then where it is of interest, and goes on until its standard input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
import threading
from pathlib import Path
from typing import Any

from tests.support.earlier_agent import ARM, STOP, EarlierAgent
from tests.support.kineto_client import IDLE, TRACING, KinetoClient, trace_bytes, trace_path


def say(what: str) -> None:
    print(what, flush=True)


def until_told() -> threading.Event:
    """Set when standard input ends."""
    done = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
    return done


def counting() -> None:
    """A real one: ranges and a counter."""
    import profclient

    profclient.attach()
    done, number = until_told(), 0
    say("ready")
    while not done.wait(0.002):
        for _ in range(5):
            with profclient.record_function("work"):
                profclient.counter("n", number)
            number += 1


def _agent() -> EarlierAgent:
    path = Path(os.environ["PROFD_ADDRESS"].removeprefix("unix:")).with_name("agent.sock")
    agent = EarlierAgent(path)
    agent.attach()
    say("ready")
    return agent


def mute() -> None:
    """It is never armed."""
    agent = _agent()
    agent.expect(ARM)
    say("asked")
    until_told().wait()


def clinging() -> None:
    """It never says that it has stopped."""
    agent = _agent()
    agent.arm()
    agent.expect(STOP)
    say("asked")
    until_told().wait()


def refusing() -> None:
    """It cannot arm."""
    agent = _agent()
    epoch, _ = agent.expect(ARM)
    agent.send(10, epoch, {"why": "no memory for an arena"})
    until_told().wait()


def whole() -> None:
    """It does what it is asked, once: ARM, STOP, RELEASE."""
    agent = _agent()
    epoch = agent.arm()
    agent.stop(epoch)
    agent.release(epoch)
    until_told().wait()


async def _kineto(kind: str) -> None:
    with KinetoClient(Path(os.environ["KINETO_IPC_SOCKET_DIR"])) as client:

        def take(_: KinetoClient, config: dict[str, str]) -> None:
            final = trace_path(config)
            part = final.with_name(final.name + ".tmp")
            text = trace_bytes(config, events=7)
            client.mask = TRACING
            if kind == "kineto-writing":
                part.write_bytes(text[: len(text) // 2])
            if kind == "kineto":
                part.write_bytes(text)
                part.rename(final)
                client.mask = IDLE
            say("asked")

        client.poll()
        say("ready")
        if kind != "kineto-silent":
            with contextlib.suppress(ConnectionError):  # the daemon is killed first
                await client.run(take)
        await asyncio.Event().wait()


def kineto(kind: str) -> None:
    """libkineto as a datagram client: `kineto` writes its trace, the others get stuck on the way."""
    done = until_told()
    threading.Thread(target=lambda: (done.wait(), os._exit(0)), daemon=True).start()
    asyncio.run(_kineto(kind))


KINDS: dict[str, Any] = {
    "counting": counting,
    "mute": mute,
    "clinging": clinging,
    "refusing": refusing,
    "whole": whole,
    **{kind: lambda kind=kind: kineto(kind) for kind in ("kineto", "kineto-silent", "kineto-taken", "kineto-writing")},
}


def become(uid: int) -> None:
    """Another user, who can be looked into as one that was executed as such (see tests/support/people.py)."""
    import profclient  # noqa: F401 - what is imported later cannot be read

    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)


if __name__ == "__main__":
    if uid := int(os.environ.get("TARGET_UID", "0")):
        become(uid)
    KINDS[sys.argv[1]]()

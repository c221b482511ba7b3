"""A program that attaches itself and marks what it does, on threads and in coroutines."""

import asyncio
import threading

import profclient
from turns import expect, turns

profclient.attach(quiet=True)


@profclient.record_function("load")
def load(number):
    """A range of its own."""
    profclient.counter("loaded", number)
    return number * 2


@profclient.record_function("wait")
async def wait(number):
    """A range over a wait."""
    await asyncio.sleep(0)
    return load(number)


async def all_of_them():
    """Ranges that overlap."""
    return await asyncio.gather(*(wait(number) for number in range(10)))


for _ in turns():
    results = []
    threads = [threading.Thread(target=lambda n=n, r=results: r.append(load(n))) for n in range(5)]
    for thread in threads:
        thread.start()
    with profclient.record_function("epoch", number=1):
        expect("loaded", asyncio.run(all_of_them()), [2 * number for number in range(10)])
    for thread in threads:
        thread.join()
    expect("loaded on threads", sorted(results), [0, 2, 4, 6, 8])
    profclient.step()

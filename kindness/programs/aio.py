"""asyncio: tasks, cancellation, exceptions, queues, a pool of threads."""

import asyncio

from turns import expect, turns


async def produce(queue, count):
    """Numbers, then the end."""
    for number in range(count):
        await queue.put(number)
    await queue.put(None)


async def consume(queue):
    """Their sum."""
    total = 0
    while (number := await queue.get()) is not None:
        total += number
    return total


async def forever():
    """Only to be cancelled."""
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)


async def fails():
    """An exception through a task."""
    await asyncio.sleep(0)
    raise ValueError("as it should")


async def turn():
    """A bit of everything."""
    queue = asyncio.Queue(3)
    _, total = await asyncio.gather(produce(queue, 50), consume(queue))
    cancelled = asyncio.create_task(forever())
    await asyncio.sleep(0)
    cancelled.cancel()
    outcomes = await asyncio.gather(cancelled, fails(), asyncio.to_thread(sum, range(10)), return_exceptions=True)
    return total, [type(outcome).__name__ for outcome in outcomes]


for _ in turns():
    expect("a turn of asyncio", asyncio.run(turn()), (1225, ["CancelledError", "ValueError", "int"]))

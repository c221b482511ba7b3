"""trio: nurseries, cancel scopes, channels, threads."""

import sys

import trio


async def produce(channel):
    """Numbers."""
    async with channel:
        for number in range(50):
            await channel.send(number)


async def turn():
    """Some of everything; a number."""
    total = 0
    send, receive = trio.open_memory_channel(2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce, send)
        async for number in receive:
            total += number
    with trio.move_on_after(0.001) as scope:
        await trio.sleep_forever()
    total += scope.cancelled_caught
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise KeyError("through a nursery")
    except* KeyError:
        total += 1
    return total + await trio.to_thread.run_sync(sum, range(10))


async def main():
    """Turns."""
    print("ok", sum([await turn() for _ in range(int(sys.argv[1]))]))


trio.run(main)

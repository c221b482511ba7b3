"""A server with a handler that computes, and threads that wait for a lock."""

import asyncio
import threading

lock = threading.Lock()


def waits() -> None:
    with lock:
        pass


def render(rows: int) -> int:
    total = 0
    for row in range(rows):
        total += row * row
    return total


async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.write(f"{render(100_000)}\n".encode())
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    print("ready", flush=True)
    while True:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"x\n")
        await reader.read()
        writer.close()


lock.acquire()
for _ in range(8):
    threading.Thread(target=waits, daemon=True).start()
asyncio.run(main())

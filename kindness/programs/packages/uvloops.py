"""uvloop: a server and its clients, subprocesses, threads, signals on libuv's loop."""

import asyncio
import signal
import sys

import uvloop


async def serve(reader, writer):
    """Upper case, a line at a time."""
    while line := await reader.readline():
        writer.write(line.upper())
    writer.close()


async def talk(port, number):
    """One client."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"line %d\n" % number)
    answer = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return answer == b"LINE %d\n" % number


async def main():
    """Turns."""
    heard, signals = 0, []
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, signals.append, 1)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for _ in range(int(sys.argv[1])):
        heard += sum(await asyncio.gather(*(talk(port, number) for number in range(20))))
        heard += await asyncio.to_thread(len, "12345")
        signal.raise_signal(signal.SIGUSR1)
        await asyncio.sleep(0.005)
    child = await asyncio.create_subprocess_exec("/bin/echo", "a child", stdout=asyncio.subprocess.PIPE)
    said, _ = await child.communicate()
    server.close()
    print(said.decode().strip(), child.returncode)
    print("ok", heard, len(signals))


uvloop.run(main())

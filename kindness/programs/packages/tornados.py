"""tornado: an HTTP server and its client in one loop, with coroutines and a pool of threads."""

import asyncio
import sys

import tornado.httpclient
import tornado.httpserver
import tornado.netutil
import tornado.web


class Square(tornado.web.RequestHandler):
    """Answers with a square, computed on a thread."""

    async def get(self, number):
        """One request."""
        square = await asyncio.get_running_loop().run_in_executor(None, lambda: int(number) ** 2)
        self.write(str(square))


async def main():
    """Turns."""
    (socket,) = tornado.netutil.bind_sockets(0, "127.0.0.1")
    server = tornado.httpserver.HTTPServer(tornado.web.Application([(r"/(\d+)", Square)]))
    server.add_socket(socket)
    client, port, total = tornado.httpclient.AsyncHTTPClient(), socket.getsockname()[1], 0
    for _ in range(int(sys.argv[1])):
        answers = await asyncio.gather(*(client.fetch(f"http://127.0.0.1:{port}/{number}") for number in range(10)))
        total += sum(int(answer.body) for answer in answers)
    server.stop()
    print("ok", total)


asyncio.run(main())

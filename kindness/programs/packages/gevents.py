"""gevent with everything patched: greenlets that talk over sockets, queues, locals, timeouts."""

from gevent import monkey

monkey.patch_all()

import socket  # noqa: E402 - after the patch, as gevent asks
import sys  # noqa: E402
import threading  # noqa: E402

import gevent  # noqa: E402
from gevent.pool import Pool  # noqa: E402
from gevent.queue import Queue  # noqa: E402
from gevent.server import StreamServer  # noqa: E402


def echo(connection, address):
    """One connection of the server."""
    while data := connection.recv(100):
        connection.sendall(data.upper())


def talk(number):
    """One client."""
    with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
        connection.sendall(b"hello %d" % number)
        return connection.recv(100)


server = StreamServer(("127.0.0.1", 0), echo)
server.start()
heard = 0
for _ in range(int(sys.argv[1])):
    answers = Pool(10).map(talk, range(20))
    heard += sum(answer == b"HELLO %d" % number for number, answer in enumerate(answers))
    queue, found = Queue(), []
    thread = threading.Thread(target=lambda f=found, q=queue: f.append(q.get()))  # a greenlet, since it is patched
    thread.start()
    queue.put("through a queue")
    thread.join()
    if found != ["through a queue"]:
        sys.exit(f"a queue gave {found}")
    with gevent.Timeout(0.001, False):
        gevent.sleep(10)
server.stop()
print("ok", heard)

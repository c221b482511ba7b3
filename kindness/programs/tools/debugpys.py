"""debugpy, listening: its trace functions are in every thread."""

import socket
import sys

from tool import TURNS, WORK, run

with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
line, _ = run(sys.executable, "-Xfrozen_modules=off", "-m", "debugpy", "--listen", str(port), WORK, TURNS)
print(line)

"""gunicorn with two workers of two threads that serve a flask application under load, until SIGTERM."""

import signal
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flask import Flask, request

app = Flask(__name__)


@app.get("/")
def square():
    """One request."""
    return str(int(request.args["number"]) ** 2)


def ask(address, number):
    """One client."""
    with urllib.request.urlopen(f"{address}/?number={number}", timeout=120) as answer:
        return int(answer.read())


def main():
    """Load, then the end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "gunicorn", "-w", "2", "--threads", "2", "-b", f"127.0.0.1:{port}", "-t", "600"]
    command += ["--graceful-timeout", "120", "--log-level", "error", "gunicorns:app"]
    server = subprocess.Popen(command, cwd=Path(__file__).parent)
    for _ in range(1200):
        try:
            ask(address, 1)
            break
        except OSError:
            time.sleep(0.1)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda number: ask(address, number), range(int(sys.argv[1]) * 20)))
    server.send_signal(signal.SIGTERM)
    print("gunicorn ended with", server.wait(120))
    print("ok", sum(answers))


if __name__ == "__main__":
    main()

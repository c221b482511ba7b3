"""A target that attaches to nothing and stays in two functions: what a sampler may see."""

import sys
import threading

done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
print("ready", flush=True)


def soak_adds():
    return sum(range(2000))


def soak_rests():
    done.wait(0.01)


while not done.is_set():
    soak_adds()
    soak_rests()
print("ok", flush=True)

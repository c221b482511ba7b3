"""5,000 short threads, at most 50 at a time; each target has to run."""

import threading
import time

ran = []
for _ in range(100):
    threads = [threading.Thread(target=ran.append, args=(1,)) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(0.03)
print("ok", len(ran))

"""A program that becomes itself anew: exec within recordings, the same pid."""

import os
import sys
import time

end = float(sys.argv[3]) if len(sys.argv) > 3 else time.time() + float(sys.argv[1])
number = int(sys.argv[4]) if len(sys.argv) > 4 else 0
for _ in range(10):
    sum(range(1000))
    time.sleep(0.1)
if time.time() < end:
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, __file__, "0", "0", str(end), str(number + 1)])
print("ok", number)

"""Interpreters within the interpreter: made, run, destroyed."""

import sys

from turns import expect, turns

try:
    import _interpreters as interpreters  # 3.13
except ImportError:
    import _xxsubinterpreters as interpreters

for _ in turns():
    number = interpreters.create()
    try:
        error = interpreters.run_string(number, "import sys; x = sum(range(100)); assert x == 4950")
        expect("what ran in an interpreter", error, None)
    finally:
        interpreters.destroy(number)
expect("interpreters that are left", len(interpreters.list_all()), 1)
sys.stdout.flush()

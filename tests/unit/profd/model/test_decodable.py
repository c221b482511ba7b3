"""Two threads that decode a type for the first time, at once."""

from __future__ import annotations

import subprocess
import sys

# A process of its own: without the decorator it ends with SIGSEGV within a few rounds.
PROGRAM = '''
import sys, threading, types

import msgspec

TYPES = """
from __future__ import annotations
import msgspec
from profd.model.decodable import decodable

class Inner(msgspec.Struct):
    a: int = 0
    b: list[str] = msgspec.field(default_factory=list)

@decodable
class Outer(msgspec.Struct, kw_only=True):
    inner: list[Inner] = msgspec.field(default_factory=list)
    named: dict[str, Inner] = msgspec.field(default_factory=dict)
    pairs: list[tuple[str, str]] = msgspec.field(default_factory=list)
"""
TEXT = b'{"inner":[{"a":1,"b":["s"]}],"named":{"k":{"a":2}},"pairs":[["1","2"]]}'

sys.setswitchinterval(1e-6)
for round in range(200):
    module = types.ModuleType(f"fresh{round}")
    sys.modules[module.__name__] = module
    exec(TYPES, module.__dict__)
    together = threading.Barrier(4)

    def decode():
        together.wait()
        assert msgspec.json.decode(TEXT, type=module.Outer).named["k"].a == 2

    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
'''


def test_threads_that_decode_a_type_first_do_not_harm_each_other() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""

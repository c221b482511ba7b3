"""A program that tells where glibc takes a large block from, once a larger one has been freed.

`SAYS` writes to stderr "large blocks: mapped" (they go back to the kernel once they are freed) or "large blocks: heap".
"""

from __future__ import annotations

import ctypes
from typing import Final

KNOWN: Final = hasattr(ctypes.CDLL(None), "mallinfo2")  # glibc 2.33

SAYS: Final = """
import ctypes, sys
from profd.kernel.heap import LARGE_BLOCK_BYTES

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
    )]

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
libc.mallinfo2.restype = Info
libc.free(libc.malloc(16 << 20))  # glibc learns from it, unless it was told not to
before = libc.mallinfo2().hblkhd
block = libc.malloc(LARGE_BLOCK_BYTES)
where = "mapped" if libc.mallinfo2().hblkhd - before >= LARGE_BLOCK_BYTES else "heap"
print("large blocks:", where, file=sys.stderr)
libc.free(block)
"""

"""A program that tells what glibc's malloc keeps.

`SAYS` writes to stderr "large blocks: mapped, heaps: 1": blocks of `LARGE_BLOCK_BYTES` go back to the kernel once they
are freed, also after a larger one ("heap": they do not), and so many heaps have been made for all threads.
"""

from __future__ import annotations

import ctypes
from typing import Final

KNOWN: Final = hasattr(ctypes.CDLL(None), "mallinfo2")  # glibc 2.33

SAYS: Final = """
import ctypes, os, sys, threading
from profd.kernel.heap import LARGE_BLOCK_BYTES

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
    )]

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
libc.mallinfo2.restype, libc.fopen.restype = Info, ctypes.c_void_p
libc.malloc_info.argtypes, libc.fclose.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]

def large_blocks():
    libc.free(libc.malloc(16 << 20))  # malloc learns from it, unless it was told not to
    before, block = libc.mallinfo2().hblkhd, libc.malloc(LARGE_BLOCK_BYTES)
    mapped = libc.mallinfo2().hblkhd - before >= LARGE_BLOCK_BYTES
    libc.free(block)
    return "mapped" if mapped else "heap"

def heaps():
    thread = threading.Thread(target=lambda: libc.free(libc.malloc(5000)))
    thread.start()
    thread.join()
    with open(os.memfd_create("heaps"), "rb") as file:
        told = libc.fopen(f"/proc/self/fd/{file.fileno()}".encode(), b"w")
        libc.malloc_info(0, told)
        libc.fclose(told)
        return file.read().count(b"<heap ")

print(f"large blocks: {large_blocks()}, heaps: {heaps()}", file=sys.stderr)
"""

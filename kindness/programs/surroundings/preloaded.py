"""LD_PRELOAD of a library with a malloc of its own name."""

import os
import shutil
import subprocess
import sys
import tempfile

from place import again

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
static _Thread_local unsigned long calls;
void *calloc(size_t n, size_t m) { extern void *__libc_calloc(size_t, size_t); calls++; return __libc_calloc(n, m); }
void *malloc(size_t n) { extern void *__libc_malloc(size_t); calls++; return __libc_malloc(n); }
"""
compiler = shutil.which("cc") or sys.exit("skip: there is no C compiler")
with tempfile.TemporaryDirectory() as folder:
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", f"{folder}/own.so"], input=SOURCE.encode(), check=True
    )
    done = subprocess.run(again(), env={**os.environ, "LD_PRELOAD": f"{folder}/own.so"}, check=False)
sys.exit(done.returncode)

"""What a process says of itself when it dies of a signal: the stack of its thread, libraries included, on stderr."""

from __future__ import annotations

import ctypes
import faulthandler
import shutil
import subprocess
import tempfile
from pathlib import Path

_SOURCE = """
#define _GNU_SOURCE
#include <execinfo.h>
#include <signal.h>
#include <unistd.h>
static struct sigaction before[65];
static void dying(int number, siginfo_t *about, void *context) {
  void *frames[64];
  (void)about, (void)context;
  write(2, "native stack:\\n", 14);
  backtrace_symbols_fd(frames, backtrace(frames, 64), 2);
  sigaction(number, &before[number], 0);
  raise(number);
}
void watch(void) {
  void *frames[1];
  int numbers[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
  backtrace(frames, 1);
  for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    struct sigaction action = {.sa_sigaction = dying, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(numbers[i], &action, &before[numbers[i]]);
  }
}
"""


def say_where() -> None:
    """From now on: the native stack, and then Python's. Python's alone where there is no C compiler."""
    faulthandler.enable()
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "dying.c", Path(folder) / "dying.so"
        source.write_text(_SOURCE)
        done = subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", library, source], capture_output=True)
        if done.returncode == 0:
            ctypes.CDLL(str(library)).watch()

"""A process whose death is a result: how it ended, and the stack that it leaves on stderr, libraries included."""

from __future__ import annotations

import ctypes
import faulthandler
import shutil
import signal
import subprocess
import tempfile
import time
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


def outcome(process: subprocess.Popen[str], seconds: float, *, aborts: bool = False) -> tuple[str, str]:
    """How a process ended ("exit 0", "signal 11 (Segmentation fault)", "hung"), and its output.

    One that hangs is killed after so many seconds; `aborts`: by SIGABRT first, so that faulthandler says where it is.
    """
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        if aborts:
            process.send_signal(signal.SIGABRT)
            time.sleep(0.2)
        process.kill()
        out, _ = process.communicate()
        return "hung", out
    code = process.returncode
    return f"exit {code}" if code >= 0 else f"signal {-code} ({signal.strsignal(-code)})", out

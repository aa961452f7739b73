"""Processes whose wall clock is wrong, as on a node without NTP.

A library put before libc's shifts the real-time clock of one process and of all that it starts;
the monotonic clock and the database's stay right.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long shift(void) {
  const char *by = getenv("SHIFT_SECONDS");
  return by ? atol(by) : 0;
}

int clock_gettime(clockid_t id, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int code = real(id, at);
  if (!code && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += shift();
  return code;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
"""


def off_by(seconds: int, folder: Path) -> dict[str, str]:
    """Return the environment of a process whose wall clock is off by so much.

    Skips the test where no C compiler is at hand.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: apt-get install gcc libc6-dev")
    library = folder / "clock.so"
    if not library.exists():
        source = folder / "clock.c"
        source.write_text(_SHIM)
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
    return {"LD_PRELOAD": str(library), "SHIFT_SECONDS": str(seconds)}

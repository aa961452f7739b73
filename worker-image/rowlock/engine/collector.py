"""Python's cycle collector in a loop process: rare, and blind to what lives for ever.

A hosted run leaves no cycle behind, so nearly everything is freed by its reference count.
With the interpreter's own thresholds the collector took a fifth of a loop's time:
it looked through all live runs again and again and found nothing.
Agents' code does leave cycles, each caught exception for one, so the collector stays on.
"""

from __future__ import annotations

import gc

#: Objects made and not freed since the last collection before the next one.
#: So many take about 2 ms of CPU to look through, little of the 50 ms of lag that stop claims.
_YOUNG_OBJECTS = 50_000


def set_up() -> None:
    """Make collections rare, and leave all that is loaded by now out of them."""
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
    gc.freeze()


def leave_out_loaded() -> None:
    """Leave modules that were just imported out of collections; drop their cycles first."""
    gc.collect()
    gc.freeze()

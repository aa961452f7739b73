"""Telling news from echoes: every status that we write comes back as a watch event."""

from __future__ import annotations

from collections import OrderedDict

from rowlock_operator.intake.seen import Seen

_KNOWN = 200_000


class EchoFilter:
    """Remembers the generation of each object that was let through.

    An object forgotten here, or never seen because the operator just started, is let through once
    more: all that follows is idempotent.

    Parameters
    ----------
    known
        Objects to remember, about 150 bytes each.
    """

    def __init__(self, known: int = _KNOWN) -> None:
        self._known: OrderedDict[str, int] = OrderedDict()
        self._limit = known

    def passes(self, seen: Seen) -> bool:
        """Tell whether `seen` holds news, and remember it."""
        uid = seen.key.uid
        if seen.gone:
            self._known.pop(uid, None)
            return True
        if self._known.get(uid, -1) >= seen.generation:
            return False
        self._remember(uid, seen.generation)
        return not (seen.kind == "AgentRun" and seen.settled)

    def _remember(self, uid: str, generation: int) -> None:
        self._known[uid] = generation
        self._known.move_to_end(uid)
        if len(self._known) > self._limit:
            self._known.popitem(last=False)

"""What people answered to one run's questions, as the run's owner read it when it began."""

from __future__ import annotations

from collections.abc import Sequence

from rowlock.agents.protocol import Question, Reply
from rowlock.states import Decision, EventKind
from rowlock.store.types import Answer, Event


class Answers:
    """Finds the answer that holds for a question now.

    An answer holds in its own attempt; of an earlier attempt only an approval does.

    Parameters
    ----------
    answers
        Those of earlier attempts first.
    history
        Tells which of them are written down already.
    silence_approves
        An expired question counts as a yes, unless it is about a call that may have happened.
    """

    __slots__ = ("_holding", "_silence_approves", "_written")

    def __init__(
        self,
        answers: Sequence[Answer],
        history: Sequence[Event],
        *,
        attempt: int,
        silence_approves: bool = False,
    ) -> None:
        self._silence_approves = silence_approves
        self._holding = {
            (answer.step_key, answer.digest): answer
            for answer in answers
            if answer.attempt == attempt or answer.decision is Decision.APPROVED
        }
        self._written = (
            {event.key for event in history if event.kind is EventKind.DECIDED}
            if answers
            else set()
        )

    def find(self, question: Question) -> Answer | None:
        """Return the answer to a question; None while there is none."""
        return self._holding.get((question.key, question.digest))

    def fresh(self, answer: Answer) -> str | None:
        """Return the key under which to write `answer` into history; None if it stands there."""
        key = f"answer:{answer.step_key}:{answer.digest}:{answer.attempt}"
        if key in self._written:
            return None
        self._written.add(key)
        return key

    def reply(self, answer: Answer, question: Question) -> Reply:
        """Return `answer` as an agent sees it."""
        expired = answer.decision is Decision.EXPIRED
        silence = expired and self._silence_approves and not question.repeats
        return Reply(
            approved=silence or answer.decision is Decision.APPROVED,
            by=answer.by,
            reason=answer.reason,
            expired=expired,
        )

"""What a check found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Parameters
    ----------
    check
        Its name.
    says
        What was found, in one line.
    cure
        What to do about it, in one line; empty when all is well.
    """

    check: str
    verdict: Verdict
    says: str
    cure: str = ""


def worst(findings: Sequence[Finding]) -> Verdict:
    """Return the worst verdict of all."""
    return max((finding.verdict for finding in findings), key=list(Verdict).index)

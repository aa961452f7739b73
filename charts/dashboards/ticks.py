"""Numbers as a person reads them: round marks of an axis, and values with their unit."""

from __future__ import annotations

import math

_BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_LARGE = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_AFTER = {"cps": "/s", "cpm": "/min"}


def marks(highest: float, *, about: int = 4) -> list[float]:
    """Return round values from 0 to at least `highest`."""
    if highest <= 0 or not math.isfinite(highest):
        return [0.0, 1.0]
    step = _round_step(highest / about)
    return [step * number for number in range(math.ceil(highest / step - 1e-9) + 1)]


def said(value: float, unit: str) -> str:
    """Return a value with its unit, short."""
    if not math.isfinite(value):
        return "-"
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s":
        return _seconds(value)
    if unit == "bool_yes_no":
        return "yes" if value else "no"
    if unit == "bytes":
        return _scaled(value, _BYTES, " ") + ("" if abs(value) >= 2**10 else " B")
    return _scaled(value, _LARGE, " ") + _AFTER.get(unit, "")


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough - 1e-12)


def _seconds(value: float) -> str:
    if value == 0:
        return "0 s"
    if value < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} s" if value < 120 else f"{value / 60:.3g} min"


def _scaled(value: float, scales: tuple[tuple[float, str], ...], gap: str) -> str:
    for size, name in scales:
        if abs(value) >= size:
            return f"{value / size:.3g}{gap}{name}"
    return f"{value:.3g}"

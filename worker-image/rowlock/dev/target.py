"""What is to be tried: the agent and its input, checked before anything is started."""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from rowlock.agents.protocol import Agent
from rowlock.engine.loader import find_agent
from rowlock.errors import AgentLoadError, ConfigurationError, InvalidInput


class BadTarget(ConfigurationError):
    """The agent or its input cannot be used."""


@dataclass(frozen=True, slots=True)
class Target:
    """An agent that can be imported, and an input that fits it."""

    entrypoint: str
    agent: Agent
    value: Any


def load_target(entrypoint: str, text: str | None) -> Target:
    """Import the agent from the current folder and check its input.

    Raises
    ------
    BadTarget
        With the option that is wrong.
    """
    import_from_here()
    try:
        agent = find_agent(entrypoint)
    except AgentLoadError as error:
        hint = _where(error.__cause__) or _agents_of(entrypoint)
        raise BadTarget(f"{error}{hint}") from error
    value = parse_input(text)
    try:
        agent.check_input(value)
    except InvalidInput as error:
        raise BadTarget(f"--input: {error}") from error
    return Target(entrypoint, agent, value)


def import_from_here() -> None:
    """Let modules of the current folder be imported, as loop processes do."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def read_input(given: str | None) -> str | None:
    """Return the text of an input: as given, of a file (`@name`), or of standard input (`-`).

    Raises
    ------
    BadTarget
        It cannot be read.
    """
    if given is None or not (given == "-" or given.startswith("@")):
        return given
    try:
        return sys.stdin.read() if given == "-" else Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadTarget(f"--input: {given} cannot be read: {error}") from error


def parse_input(text: str | None) -> Any:
    """Return the JSON value that a text is; what looks like no JSON at all is a string.

    Raises
    ------
    BadTarget
        It begins as an object, a list or a string, and is none.
    """
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        if text.lstrip()[:1] in ("{", "[", '"'):
            raise BadTarget(f"--input: is not valid JSON: {error}") from error
        return text


def _agents_of(entrypoint: str) -> str:
    """Return which agents stand in a module that was imported."""
    name = entrypoint.partition(":")[0]
    there = [
        f"{name}:{attribute}"
        for attribute, value in vars(sys.modules.get(name, object)).items()
        if callable(getattr(value, "execute", None))
        and isinstance(getattr(value, "name", None), str)
    ]
    return f"; agents there are {', '.join(there)}" if there else ""


def _where(error: BaseException | None) -> str:
    """Return where in the author's code an import failed."""
    if error is None or error.__traceback__ is None:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith("<") and "/importlib/" not in f.filename]
    last = own[-1] if len(own) > 1 else None
    return f" ({_short(last.filename)}, line {last.lineno})" if last else ""


def _short(file: str) -> str:
    try:
        return os.path.relpath(file)
    except ValueError:
        return file

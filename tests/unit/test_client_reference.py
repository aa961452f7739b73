"""The reference page of the client is made from its documentation.

`WRITE_REFERENCE=1 make test-unit ARGS="-k reference"` writes it anew.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path

from rowlock import Client, RunEvent, RunHandle, RunInfo, errors
from rowlock.errors import ClientError

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "client.md"
MARK = '<!-- Generated: WRITE_REFERENCE=1 make test-unit ARGS="-k reference". Do not edit. -->\n'
_HEAD = """
# Client

`from rowlock import Client, SyncClient`.
[Start runs from code](../how-to/start-runs-from-code.md) shows how they are used.
`SyncClient` and `SyncRunHandle` have the same calls, without `await`.
"""


def page() -> str:
    """Return the page."""
    parts = [MARK + _HEAD]
    for kind in (Client, RunHandle):
        parts += [f"## {kind.__name__}", prose(kind), *calls(kind)]
    for kind in (RunInfo, RunEvent):
        parts += [f"## {kind.__name__}", prose(kind)]
    parts += ["## Errors", "All are a `ClientError`, which is a `RowlockError`.", *raised()]
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(parts)).rstrip() + "\n"


def calls(kind: type) -> Iterator[str]:
    """Yield a part for each public method."""
    own = [c for c in kind.__mro__ if c.__module__.startswith("rowlock")]
    methods = {name: method for c in reversed(own) for name, method in vars(c).items()}
    for name, method in methods.items():
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        yield f"### {kind.__name__}.{name}"
        yield f"```python\n{signature(method)}\n```"
        yield prose(method)


def signature(method: object) -> str:
    """Return a call as a person would read it, one parameter a line where there are many."""
    assert callable(method)
    is_async = "async " if inspect.iscoroutinefunction(method) else ""
    told = str(inspect.signature(method)).replace("'", "").replace("(self, ", "(")
    told = told.replace("(self)", "()").replace("Handles[Any]", "list[RunHandle[Any]]")
    told = told.replace("-> Infos", "-> list[RunInfo]")
    text = f"{is_async}{method.__name__}{told}"
    if len(text) <= 100:
        return text
    head, _, rest = text.partition("(")
    inside, _, after = rest.rpartition(") ->")
    lines = "".join(f"\n    {one}," for one in inside.split(", "))
    return f"{head}({lines}\n) ->{after}"


def prose(documented: object) -> str:
    """Return a docstring with its sections as lists."""
    text = inspect.getdoc(documented) or ""
    text = re.sub(r"^(\w[\w ]*)\n-+$", r"**\1**\n", text, flags=re.MULTILINE)
    return re.sub(
        r"^(\w[\w, ]*)\n((?: {4}.+(?:\n|$))+)",
        lambda found: f"- {names(found[1])}: {' '.join(found[2].split())}\n",
        text,
        flags=re.MULTILINE,
    )


def names(listed: str) -> str:
    """Return names as code."""
    return ", ".join(f"`{name}`" for name in listed.split(", "))


def raised() -> Iterator[str]:
    """Yield a line for each error."""
    rows = ["| error | meaning |", "|---|---|"]
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, ClientError) and kind is not ClientError:
            meaning = (inspect.getdoc(kind) or "").splitlines()[0]
            rows.append(f"| `{name}` | {meaning} |")
    yield "\n".join(rows)


def test_the_reference_page_of_the_client_says_what_the_code_says() -> None:
    expected = page()
    if os.environ.get("WRITE_REFERENCE"):
        PAGE.write_text(expected)
    assert PAGE.read_text() == expected

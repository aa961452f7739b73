"""What the pages show is run, and prints what they say it prints.

All pages are looked for: a new one that holds Python is run from its first day.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from pydantic import BaseModel

from rowlock.testing import ScriptedModel

ROOT = Path(__file__).parents[2]

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)")

#: What needs more than Python, and the test that does the same.
ELSEWHERE = {
    "docs/how-to/local-cluster.md": "tests/integration/test_localcluster.py",
    "docs/how-to/start-runs-from-code.md": "tests/integration/client/test_client_docs.py",
    "docs/how-to/watch-and-steer-runs.md": "tests/integration/client/test_terminal_docs.py",
    "docs/tutorial/first-agent.md": "tests/acceptance/test_tutorial.py",
    "docs/reference/client.md": "tests/unit/test_client_reference.py",  # signatures, no program
}


class Order(BaseModel):
    """Stands for a type of the reader's own."""


class Refund(BaseModel):
    """Stands for another."""


#: Names that a page takes from the reader's own code.
GIVEN: dict[str, dict[str, Any]] = {
    "README.md": {
        "Order": Order,
        "Refund": Refund,
        "model": ScriptedModel([]),
        "PROMPT": "Help.",
    }
}


def pages() -> list[str]:
    """Return all pages, from the root."""
    found = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(str(page.relative_to(ROOT)) for page in found)


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Return language and text of a page's blocks."""
    return ((match[1], match[2]) for match in _BLOCK.finditer((ROOT / page).read_text()))


def holds_python(page: str) -> bool:
    """Tell whether there is something to run."""
    return any(language == "python" for language, _ in blocks(page))


PAGES = pages()
PROGRAMS = [page for page in PAGES if holds_python(page) and page not in ELSEWHERE]


@pytest.fixture(autouse=True)
def engine_log() -> Iterator[None]:
    """Keep the engine's log, which has times in it, out of what a page prints."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("page", PROGRAMS)
def test_a_pages_code_prints_what_the_page_says(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its blocks are one program, in their order; a text right after one is what that printed."""
    module = types.ModuleType("page")
    vars(module).update(GIVEN.get(page, {}))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    printed = ""

    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page, "exec", dont_inherit=True), vars(module))  # noqa: S102
            printed = capsys.readouterr().out
        elif language == "text":
            assert printed == text


def test_pages_for_authors_are_programs() -> None:
    """The search finds them, and what stands on the list of exceptions is there."""
    assert {
        "README.md",
        "docs/how-to/return-structured-output.md",
        "docs/how-to/write-a-tool.md",
    } <= set(PROGRAMS)
    for page, test in ELSEWHERE.items():
        assert holds_python(page)
        assert (ROOT / test).exists()


@pytest.mark.parametrize("page", PAGES)
def test_a_pages_links_lead_somewhere(page: str) -> None:
    """Within the repository."""
    prose = _CODE.sub("", _BLOCK.sub("", (ROOT / page).read_text()))

    for target in _LINK.findall(prose):
        assert ((ROOT / page).parent / target).exists(), target

"""What the pages for agent authors show is run, and prints what they say it prints."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [
    "tutorial/first-agent.md",
    "how-to/use-a-model.md",
    "how-to/test-an-agent.md",
    "how-to/write-a-tool.md",
    "how-to/approve-a-tool-call.md",
    "how-to/suspend-and-redrive.md",
    "explanation/steps-and-replay.md",
]

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Return language and text of a page's blocks."""
    return ((match[1], match[2]) for match in _BLOCK.finditer((DOCS / page).read_text()))


@pytest.fixture(autouse=True)
def engine_log() -> Iterator[None]:
    """Keep the engine's log, which has times in it, out of what a page prints."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("page", PAGES)
def test_a_pages_code_prints_what_the_page_says(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its blocks are one program, in their order."""
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    printed = ""

    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page, "exec"), vars(module))  # noqa: S102
            printed = capsys.readouterr().out
        elif language == "text":
            assert printed == text


@pytest.mark.parametrize("page", PAGES)
def test_a_pages_links_lead_somewhere(page: str) -> None:
    """Within the repository."""
    for target in _LINK.findall((DOCS / page).read_text()):
        assert ((DOCS / page).parent / target).exists(), target

"""Each published failure of others has its tests, and the page that lists them says which."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "explanation" / "failures-of-others.md"
_ROW = re.compile(r"^\| (\S+/\S+#\d+(?: \(comment\))?) \|.*\| ([^|]+) \|$", re.MULTILINE)


def marked() -> dict[str, set[str]]:
    """Return for each report the tests that carry its mark."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for report in filter(None, map(_report, node.decorator_list)):
                    found[report].add(node.name)
    return found


def _report(decorator: ast.expr) -> str | None:
    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("mark.public_bug"):
        return str(ast.literal_eval(decorator.args[0]))
    return None


def listed() -> list[tuple[str, set[str]]]:
    """Return each row of the page: its report and its tests."""
    rows = _ROW.findall(PAGE.read_text())
    return [(report, set(re.findall(r"`(test_\w+)`", tests))) for report, tests in rows]


def test_the_page_lists_exactly_the_marked_tests() -> None:
    assert dict(listed()) == marked()


def test_every_report_stands_once_and_has_a_test() -> None:
    reports = [report for report, _ in listed()]
    assert len(reports) == len(set(reports)) == 19
    assert all(tests for _, tests in listed())

"""Every command that the pages name exists: subcommands, flags, make targets, kinds, files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from rowlock.cli import app
from rowlock_operator.cli import app as operator_app

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
)
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
SPAN = re.compile(r"`((?:kubectl rowlock|rowlock|rowlock-operator|make) [^`\n]+)`")
SEPARATORS = {"|", "&&", ";"}

#: Kinds of Kubernetes itself, as pages name them.
BUILT_IN = {
    "endpointslices",
    "clusterrolebinding", "configmap", "crd", "deployment", "deployments", "deploy", "events",
    "job", "lease", "namespace", "namespaces", "networkpolicy", "node", "nodes", "pod", "pods",
    "replicaset",
    "rolebinding", "secret", "service", "statefulset", "statefulsets", "pvc", "hpa",
}  # fmt: skip
#: Named by a docstring, and no command of the terminal.
NO_COMMANDS = {"trials"}
VERBS = {"get", "describe", "patch", "delete", "wait", "scale", "rollout"}
SKIPPED = {"status", "restart", "undo", "history"}


@cache
def kinds() -> set[str]:
    """Return all names under which kubectl knows our kinds, and those of Kubernetes."""
    found = set(BUILT_IN)
    for file in (ROOT / "crds").glob("*.yaml"):
        names = yaml.safe_load(file.read_text())["spec"]["names"]
        found |= {names["plural"], names["singular"], *names["shortNames"], *names["categories"]}
    return found


@cache
def targets() -> set[str]:
    """Return the targets of the Makefile."""
    return set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands(page: str) -> Iterator[list[str]]:
    """Yield the words of each command of a page: of its consoles, and those named in a line."""
    text = (ROOT / page).read_text()
    for block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                yield from parts(line[2:])
    for span in SPAN.findall(text):
        yield from parts(span)


def parts(line: str) -> Iterator[list[str]]:
    """Yield the commands of a line, without variables and comments."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # an open quote: a text of many lines follows
        words = line.split()
    one: list[str] = []
    for word in [*words, ";"]:
        if word in SEPARATORS:
            if one:
                yield one
            one = []
        elif one or not re.fullmatch(r"[A-Z_]+=.*", word):
            one.append(word)


def check_click(command: Any, words: list[str]) -> None:
    """Assert that a subcommand and its long flags exist."""
    if hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"no such command: {words}"
        command = command.commands[words[0]]
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    for word in words:
        if word.startswith("--") and word != "--":
            flag = word.partition("=")[0]
            assert flag in known | {"--help"}, f"no such flag: {flag} in {words}"


def check(words: list[str]) -> None:
    """Assert that what a command names exists; nothing is known of other programs."""
    program, *rest = words
    if any(word.startswith(("…", "[")) or word in NO_COMMANDS for word in rest[:2]):
        return
    if program == "kubectl" and rest[:1] == ["rowlock"]:
        program, rest = rest[0], rest[1:]
    if program == "rowlock":
        check_click(typer.main.get_command(app), rest)
    elif program == "rowlock-operator":
        check_click(typer.main.get_command(operator_app), rest)
    elif program == "make":
        named = [word for word in rest if re.fullmatch(r"[a-z][a-z0-9-]*", word)]
        assert not named or named[0] in targets(), f"no such target: {words}"
    elif program == "kubectl":
        check_kind(rest)
    elif program == "helm":
        for word in rest:
            assert not word.startswith("charts/") or (ROOT / word).exists(), f"no {word}"


def check_kind(words: list[str]) -> None:
    """Assert that kubectl knows the kind that a command names."""
    at = next((place for place, word in enumerate(words) if word in VERBS), None)
    if at is None:
        return
    rest = iter(words[at + 1 :])
    for word in rest:
        if word == "--raw":
            return
        if word in {"-n", "-l", "-o", "-p", "-f", "--type", "--for", "--context"}:
            if word == "-f":
                return
            next(rest, None)
        elif not word.startswith("-") and word not in SKIPPED:
            for kind in word.partition("/")[0].split(","):
                assert kind.partition(".")[0].lower() in kinds(), f"no such kind: {kind}"
            return


@pytest.mark.parametrize("page", [page for page in PAGES if any(commands(page))])
def test_what_a_page_tells_to_type_exists(page: str) -> None:
    for words in commands(page):
        check(words)


@pytest.mark.parametrize(
    "line",
    [
        "rowlock migrat",
        "rowlock worker --slot 3",
        "kubectl rowlock descrbe x",
        "rowlock-operator --no-such",
        "make no-such-target",
        "kubectl get agentrunz",
        "kubectl -n a describe wpol/default",
        "helm install x charts/nowhere",
    ],
)
def test_what_does_not_exist_is_found(line: str) -> None:
    [words] = parts(line)
    with pytest.raises(AssertionError, match="no "):
        check(words)

"""Which lines are items, where they may be read from, and what is said of those that are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock.batches.addresses import BadAddress, check, file_below, shown
from rowlock.batches.chunks import next_chunk
from rowlock.batches.lines import BrokenItem, read_line, read_lines, unique
from rowlock.batches.source import Interrupted, Unreadable, opened
from rowlock.store import bodies
from tests.file_server import File, serving

SHAPE = '{"id": "…", "text": "…"}'
DNS = "id must be a DNS label of at most 40 characters: a-z, 0-9 and '-', as in issue-17"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", f"is not JSON; right is {SHAPE}"),
        ("\ufeff{}", f"is not JSON; right is {SHAPE}"),
        ("[]", f"is not an object with exactly id and text: {SHAPE}"),
        ('{"id": "a"}', f"is not an object with exactly id and text: {SHAPE}"),
        ('{"id": "a", "text": "", "x": 1}', f"is not an object with exactly id and text: {SHAPE}"),
        ('{"id": "A", "text": ""}', DNS),
        ('{"id": "a-", "text": ""}', DNS),
        ('{"id": "a\\n", "text": ""}', DNS),
        ('{"id": 7, "text": ""}', DNS),
        (json.dumps({"id": "a" * 41, "text": ""}), DNS),
        (
            '{"id": "a", "text": {}}',
            "text must be a string; JSON for the agent goes into it as a string",
        ),
        (
            json.dumps({"id": "a", "text": "x" * 65_537}),
            "text has 65537 bytes, at most 65536 are allowed",
        ),
        ('{"id": "a", "text": "' + "x" * 600_000 + '"}', "is longer than 524288 bytes"),
    ],
    ids=range(13),
)
def test_wrong_line_is_named_with_what_is_right(line: str, why: str) -> None:
    with pytest.raises(BrokenItem) as refused:
        read_line(4711, line.encode())
    assert str(refused.value) == f"line 4711: {why}"


@given(st.binary(max_size=60))
def test_no_line_breaks_the_reader_or_is_quoted(line: bytes) -> None:
    said = "line 1: "
    try:
        read_line(1, line)
    except BrokenItem as error:
        said = str(error)
    assert said.startswith("line 1: ")
    given = line.strip().decode(errors="replace")
    assert len(given) < 12 or given not in said


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=50))
def test_text_is_json_where_it_is_json_and_else_a_string(text: str) -> None:
    item = read_line(3, json.dumps({"id": "a-1", "text": text}).encode())
    assert item is not None
    stored = json.loads(bodies.unpack(item.input))
    try:
        expected = json.loads(text)
    except ValueError:
        expected = text
    assert stored == expected or text in ("NaN", "Infinity", "-Infinity")


def test_empty_lines_count_and_are_no_items() -> None:
    raw = b'\n{"id": "a", "text": ""}\r\n\n  \n{"id": "b", "text": ""}'
    assert [(item.place, item.item) for item in read_lines(raw)] == [(2, "a"), (5, "b")]


def test_second_item_of_an_id_is_named() -> None:
    raw = b'{"id": "a", "text": "1"}\n\n{"id": "a", "text": "2"}\n'
    with pytest.raises(BrokenItem, match="line 3: has the id of line 1"):
        list(unique(read_lines(raw)))


@pytest.mark.parametrize(
    "uri",
    [
        "https://files.test/items.jsonl?sig=1",
        "http://10.0.0.1:8080/a%20b",
        "file:///items/all.jsonl",
        "http://[::1]/items",
    ],
)
def test_address_is_taken(uri: str) -> None:
    check(uri)


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("ftp://files.test/a", "must begin with one of https://, http://, file://"),
        ("items.jsonl", "must begin with one of"),
        ("s3://bucket/key", "must begin with one of"),
        ("https:///items", "names no host"),
        ("https://me:secret@files.test/", "must not hold a user name or a password"),
        ("https://token@files.test/", "must not hold a user name or a password"),
        ("https://files.test/a b", "percent-encode"),
        ("https://files.test/ä", "percent-encode"),
        ("https://files.test:port/", "is no address"),
        ("http://[::1/", "is no address"),
        ("file://host/items", "three slashes"),
        ("file:///a%00b", "names no file"),
    ],
)
def test_address_is_refused_without_its_secrets(uri: str, why: str) -> None:
    with pytest.raises(BadAddress) as refused:
        check(uri)
    assert why in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "token@" not in str(refused.value)


def test_file_must_lie_below_the_folder(tmp_path: Path) -> None:
    folder, outside = tmp_path / "items", tmp_path / "secret"
    folder.mkdir()
    outside.write_text("")
    (folder / "link").symlink_to(outside)
    (folder / "a b").write_text("")
    assert file_below(f"file://{folder}/a%20b", str(folder)) == folder / "a b"
    for path in (f"{folder}/../secret", f"{folder}/%2e%2e/secret", f"{folder}/link", "/etc/passwd"):
        with pytest.raises(BadAddress, match="is not below ROWLOCK_BATCH_FOLDER"):
            file_below(f"file://{path}", str(folder))
    with pytest.raises(BadAddress, match="ROWLOCK_BATCH_FOLDER is not set"):
        file_below(f"file://{folder}/a", "")


def test_query_of_an_address_is_never_shown() -> None:
    assert shown("https://files.test/a?sig=hidden#x") == "https://files.test/a"


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "whole"])
@pytest.mark.parametrize("offset", [0, 1, 70_000, 199_999, 200_000])
def test_bytes_from_an_offset(ranges: bool, offset: int) -> None:
    content = bytes(n % 251 for n in range(200_001))
    with serving(File(content, ranges=ranges)) as uri, opened(uri, offset, folder="") as found:
        assert b"".join(found.blocks) == content[offset:]
        assert found.version == '"1"'


@pytest.mark.parametrize(
    ("fault", "kind", "why"),
    [
        ({"cuts": {1}}, Interrupted, "broke off"),
        ({"codes": {1: 503}}, Interrupted, "answers 503"),
        ({"codes": {1: 404}}, Unreadable, "answers 404"),
        ({"codes": {1: 403}}, Unreadable, "answers 403"),
        ({"length": False}, Unreadable, "does not say its length"),
        ({"location": "file:///etc/passwd"}, Unreadable, "leads to an address"),
        ({"location": "ftp://files.test/"}, Unreadable, "leads to an address"),
    ],
    ids=str,
)
def test_fault_of_a_server_is_told_without_the_query(
    fault: dict[str, object], kind: type[Exception], why: str
) -> None:
    file = File(b"x" * 300_000, **fault)  # type: ignore[arg-type]

    def read(uri: str) -> None:
        with opened(uri, 0, folder="") as found:
            for _ in found.blocks:
                pass

    with serving(file) as uri, pytest.raises(kind) as failed:
        read(f"{uri}?sig=hidden")
    assert why in str(failed.value)
    assert "hidden" not in str(failed.value)
    assert failed.value.__cause__ is None


def test_server_that_is_not_there_is_tried_again() -> None:
    with serving(File(b"")) as uri:
        pass
    with pytest.raises(Interrupted, match="cannot be reached"), opened(uri, 0, folder=""):
        pass


@given(
    st.lists(st.text(alphabet="ab \r", max_size=9), max_size=20),
    st.integers(1, 7),
    st.integers(1, 5),
    st.integers(1, 30),
)
def test_chunks_put_together_are_the_file(
    lines: list[str], block: int, most_lines: int, most_bytes: int
) -> None:
    raw = "\n".join(lines).encode()
    offset, found = 0, []
    while True:
        rest = raw[offset:]
        blocks = (rest[at : at + block] for at in range(0, len(rest), block))
        chunk = next_chunk(blocks, len(found) + 1, most_lines=most_lines, most_bytes=most_bytes)
        assert len(chunk.lines) <= most_lines
        found += chunk.lines
        offset += chunk.length
        if chunk.last:
            break
    assert offset == len(raw)
    assert b"".join(line for _, line in found) == raw
    assert [number for number, _ in found] == list(range(1, len(found) + 1))


def test_line_without_an_end_is_refused_early() -> None:
    def blocks() -> object:
        while True:
            yield b"x" * 65_536

    with pytest.raises(BrokenItem, match="line 9: is longer than 524288 bytes"):
        next_chunk(blocks(), 9)  # type: ignore[arg-type]

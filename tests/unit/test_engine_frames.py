"""What a loop process and an executor say to each other, byte by byte."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock.agents.crossing import BlockingAnswer, BlockingCall, Kind, Trouble, trouble_of
from rowlock.engine.board import MOST_EXECUTORS, Board, Groups
from rowlock.engine.executor import LogStream
from rowlock.engine.executor_process import how_it_died
from rowlock.engine.frames import (
    BadFrame,
    Begun,
    Channel,
    Ended,
    Execute,
    FromExecutor,
    Setup,
    ToExecutor,
    frame,
    read_frame,
)

CALL = Execute(
    "shop.agent", BlockingCall("shop.tools", "Tool.run", True, b'{"a":1}', 7, 1, "7/x/1")
)
ANSWERS: list[FromExecutor] = [
    Begun(),
    Ended(BlockingAnswer(b"x" * 300_000, used=(1, 2, 3), degraded=("why",))),
    Ended(BlockingAnswer(trouble=Trouble(Kind.PERMANENT, [("A", "b")], 2.5, "trace"))),
]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected sockets."""
    left, right = socket.socketpair()
    yield left, right
    left.close()
    right.close()


def fed(data: bytes) -> asyncio.StreamReader:
    """Return a stream that holds `data` and ends."""
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


async def test_answers_arrive_whole_and_in_order() -> None:
    reader = fed(b"".join(map(frame, ANSWERS)))
    assert [await read_frame(reader, limit=1 << 20) for _ in ANSWERS] == ANSWERS


def test_calls_arrive_whole_and_in_order(pair: tuple[socket.socket, socket.socket]) -> None:
    sent: list[ToExecutor] = [Setup(0, 1024, "json", "INFO"), CALL, CALL]
    sending = Thread(target=pair[0].sendall, args=(b"".join(frame(message) for message in sent),))
    sending.start()
    channel = Channel(pair[1])
    assert [channel.receive() for _ in sent] == sent
    sending.join()


async def test_a_long_message_crosses_in_pieces(pair: tuple[socket.socket, socket.socket]) -> None:
    reader, writer = await asyncio.open_connection(sock=pair[0])
    sending = asyncio.to_thread(Channel(pair[1]).send, ANSWERS[1])
    answer, _ = await asyncio.gather(read_frame(reader, limit=1 << 20), sending)
    assert answer == ANSWERS[1]
    writer.close()


def test_the_end_of_the_loop_process_is_an_end(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].sendall(frame(CALL)[:-1])
    pair[0].shutdown(socket.SHUT_WR)
    with pytest.raises(EOFError):
        Channel(pair[1]).receive()


async def test_a_message_over_the_limit_is_refused_before_it_is_read() -> None:
    reader = fed((2000).to_bytes(4, "big"))
    with pytest.raises(BadFrame, match="2000 bytes; at most 1999"):
        await read_frame(reader, limit=1999)


@given(st.binary(max_size=200))
async def test_whatever_a_broken_executor_sends_is_one_of_two_errors(data: bytes) -> None:
    try:
        await read_frame(fed(len(data).to_bytes(4, "big") + data), limit=100)
    except (BadFrame, EOFError):
        return
    assert data == frame(Begun())[4:]


@given(st.text(), st.floats())
def test_no_exception_is_too_odd_to_cross(text: str, wait: float) -> None:
    error = ValueError(text)
    error.retry_after = wait  # type: ignore[attr-defined]
    assert len(frame(Ended(BlockingAnswer(trouble=trouble_of(error))))) < 100_000


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "it left with exit code 0"),
        (9, "it left with exit code 9"),
        (-9, "SIGKILL ended it, perhaps for want of memory"),
        (-11, "SIGSEGV ended it"),
        (-99, "signal 99 ended it"),
    ],
)
def test_a_return_code_in_words(code: int, words: str) -> None:
    assert how_it_died(code) == words


def test_the_board_shows_the_groups_of_executors() -> None:
    board = Board.create()
    groups = Groups(board)
    for number in range(1, MOST_EXECUTORS + 2):
        groups.add(number)  # one too many is not shown, and breaks nothing
    assert board.groups() == list(range(1, MOST_EXECUTORS + 1))
    groups.discard(5)
    groups.discard(99999)
    groups.add(100)
    assert sorted(board.groups()) == sorted({*range(1, MOST_EXECUTORS + 1), 100} - {5})


def test_what_is_printed_becomes_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(LogStream, "_say", lambda _, line: said.append(line))
    stream = LogStream("stdout")
    for piece in ("one\ntw", "o\n", "x" * 9000, "\nend"):
        assert stream.write(piece) == len(piece)
    stream.flush()
    stream.flush()
    assert said == ["one", "two", "x" * 9000, "", "end"]

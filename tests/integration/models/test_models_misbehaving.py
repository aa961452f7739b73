"""`OpenAIChat` against a real server that misbehaves: each answer is a turn or one error."""

from __future__ import annotations

import asyncio
import gzip
import socket
import weakref
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from rowlock import (
    ModelRefused,
    ModelRequest,
    ModelTimeouts,
    ModelTurn,
    ModelUnavailable,
    OpenAIChat,
    ToolCall,
    Usage,
)
from rowlock.agents.messages import system_message, user_message
from rowlock.models import pool
from tests import model_servers as servers
from tests.model_servers import DONE, Answer, Exchange, delta, event, plain, raw, serving

KEY = "sk-proj-0123456789abcdef"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
UNTIL_EOF = HEAD + b"\r\n"


def chunk(data: bytes) -> bytes:
    """Return one chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def request(emit: Any = lambda _: None, **more: Any) -> ModelRequest:
    """Return a small question."""
    messages = [system_message("Be brief."), user_message("Hello")]
    return ModelRequest(1, messages, b"[]", None, emit, **more)


def model(server: servers.ModelServer, **options: Any) -> OpenAIChat:
    """Return a client of the server."""
    return OpenAIChat("m", base_url=server.url, api_key=KEY, **options)


async def ask(*answers: Answer, **options: Any) -> ModelTurn:
    """Ask a server once that answers like this."""
    async with serving(*answers) as server:
        return await model(server, **options).turn(request())


GOOD = ModelTurn("Hello you", usage=Usage(10, 5), finish="stop")


async def test_a_stream_becomes_a_turn() -> None:
    """Text, usage and why it ended."""
    assert await ask(servers.speech("Hello you")) == GOOD


async def test_parallel_calls_are_put_together_by_their_index() -> None:
    """Fragments of both come in turns."""
    turn = await ask(servers.calls(("a", "find", '{"x": 1}'), ("b", "read", '{"y": "é"}')))

    assert turn.tool_calls == (
        ToolCall("a", "find", '{"x": 1}'),
        ToolCall("b", "read", '{"y": "é"}'),
    )
    assert turn.finish == "tool_calls"


@pytest.mark.parametrize("index", [{}, {"index": 0}])
async def test_calls_without_a_proper_index_are_told_apart_by_their_ids(index: Any) -> None:
    """Some servers give none, some the same to all."""
    pieces = [
        delta(tool_calls=[{**index, "id": i, "function": {"name": n, "arguments": '{"a":'}}])
        + delta(tool_calls=[{**index, "function": {"arguments": "1}"}}])
        for i, n in [("a", "find"), ("b", "read")]
    ]
    turn = await ask(servers.events(*pieces, delta(finish="tool_calls"), DONE))

    assert turn.tool_calls == (ToolCall("a", "find", '{"a":1}'), ToolCall("b", "read", '{"a":1}'))


async def test_calls_without_ids_are_named_by_their_place() -> None:
    """The same name at every replay."""
    piece = delta(tool_calls=[{"index": 3, "function": {"name": "find", "arguments": {"a": 1}}}])
    turn = await ask(servers.events(piece, DONE))

    assert turn.tool_calls == (ToolCall("call_1_0", "find", '{"a":1}'),)


async def test_a_server_that_does_not_stream_is_understood() -> None:
    """Its whole completion is the turn."""
    body = (
        b'{"choices":[{"message":{"role":"assistant","content":"Hello you"},'
        b'"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5}}'
    )
    assert await ask(plain("200 OK", body)) == GOOD


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(b"".join(servers.said("Hello you")) + servers.usage() + DONE, id="LF"),
        pytest.param(
            (b"".join(servers.said("Hello you")) + servers.usage() + DONE).replace(b"\n", b"\r\n"),
            id="CRLF",
        ),
        pytest.param(
            b": ping\n\n"
            + b"event: x\nid: 1\nretry: 5\n".join(servers.said("Hello you"))
            + b":\n\n"
            + servers.usage()
            + DONE,
            id="comments and other fields",
        ),
        pytest.param(
            b"".join(servers.said("Hello you")).replace(b"data: ", b"data:")
            + servers.usage()
            + b"data: [DONE]",
            id="no space, no last line end",
        ),
        pytest.param(
            b"".join([*servers.said("Hello you"), servers.usage()]),
            id="no DONE",
        ),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("framing", ["chunked", "until the end", "length", "gzip"])
async def test_any_framing_in_any_pieces(stream: bytes, size: int, framing: str) -> None:
    """The same turn, however its bytes are ended, framed and cut."""
    if framing == "gzip":
        packed = gzip.compress(stream)
        sent = HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed
    elif framing == "length":
        sent = HEAD + b"Content-Length: %d\r\n\r\n" % len(stream) + stream
    elif framing == "until the end":
        sent = UNTIL_EOF + stream
    else:
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        sent = CHUNKED + b"".join(map(chunk, pieces)) + b"0\r\n\r\n"
    assert await ask(raw(*(sent[at : at + size] for at in range(0, len(sent), size)))) == GOOD


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ([], None),
        (["Retry-After: 7"], 7),
        (["Retry-After: 0.5"], 0.5),
        (["Retry-After: 7", "retry-after-ms: 1500"], 1.5),
        (["Retry-After: soon"], None),
        (["Retry-After: -3"], None),
        (["Retry-After: inf"], None),
        (["Date: Mon, 01 Jan 2024 00:00:00 GMT", "Retry-After: Mon, 01 Jan 2024 00:01:00 GMT"], 60),
        (["Date: Mon, 01 Jan 2024 00:01:00 GMT", "Retry-After: Mon, 01 Jan 2024 00:00:00 GMT"], 0),
    ],
)
async def test_429_says_how_long_to_wait(headers: list[str], wait: float | None) -> None:
    """In seconds, in milliseconds or by a date, which the server's own clock measures."""
    with pytest.raises(ModelUnavailable, match=r"429 Too Many Requests: slow down") as caught:
        await ask(plain("429 Too Many Requests", b'{"error":{"message":"slow down"}}', *headers))
    assert caught.value.retry_after == wait


async def test_a_date_without_a_servers_clock_is_measured_by_ours() -> None:
    """To the second."""
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    with pytest.raises(ModelUnavailable) as caught:
        await ask(plain("503 Service Unavailable", b"", f"Retry-After: {until}"))
    assert 50 < (caught.value.retry_after or 0) <= 100


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
async def test_what_may_pass_is_tried_again(status: int) -> None:
    """The error is retryable and no permanent one."""
    with pytest.raises(ModelUnavailable, match=f"answered {status}") as caught:
        await ask(plain(f"{status} Whatever"))
    assert caught.value.retryable


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 413, 422])
async def test_what_will_not_pass_is_refused(status: int) -> None:
    """With the server's own words and without the key, whole or masked."""
    words = f"Incorrect key {KEY} (sk-p*******cdef), see docs"
    body = b'{"error": {"message": "%b", "code": "x"}}' % words.encode()
    with pytest.raises(ModelRefused, match="Incorrect key … … see docs") as caught:
        await ask(plain(f"{status} Whatever", body))
    assert f"answered {status}" in str(caught.value)
    assert not caught.value.retryable


async def test_a_key_is_taken_out_before_a_message_is_cut() -> None:
    """Not even its beginning is left at the end of a long message."""
    words = "x" * 390 + KEY
    with pytest.raises(ModelRefused) as caught:
        await ask(plain("401 Unauthorized", b'{"error": {"message": "%b"}}' % words.encode()))
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"detail":"no such model"}', "no such model"),
        (b'{"detail":[{"loc":["model"]}]}', '[{"loc":["model"]}]'),
        (b'[{"error":{"message":"in a list"}}]', "in a list"),
        (b'{"message":"bare"}', "bare"),
        (b'{"error":"text"}', "text"),
        (b'"just text"', '"just text"'),
        (b"plain\n text", "plain text"),
        (b"<html><style>p {}</style><h1>Not <b>here</b></h1></html>", "Not here"),
        (b"\xff\xfe", "\ufffd"),
        (b"", ""),
    ],
)
async def test_any_error_body_is_read_for_a_person(body: bytes, words: str) -> None:
    """JSON of several makers, text, HTML, bytes."""
    with pytest.raises(ModelRefused, match="404 Not Found") as caught:
        await ask(plain("404 Not Found", body))
    assert words in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("framing", ["chunked", "gzip", "until the end", "endless"])
async def test_an_error_body_may_come_in_any_framing(framing: str) -> None:
    """Also one that is too long to be read to its end."""
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
    body = b'{"error":{"message":"bad idea"}}'
    sent = {
        "chunked": head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(body) + b"0\r\n\r\n",
        "gzip": head
        + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunk(gzip.compress(body))
        + b"0\r\n\r\n",
        "until the end": head + b"\r\n" + body,
        "endless": head + b"\r\nbad idea" + b"x" * 1_000_000,
    }[framing]
    with pytest.raises(ModelRefused, match="bad idea"):
        await ask(raw(sent))


async def test_a_redirect_is_not_followed() -> None:
    """The key stays here; the message says where the server would send it."""
    with pytest.raises(ModelRefused, match=r"redirects to https://elsewhere.test/v1"):
        await ask(plain("307 Temporary Redirect", b"", "Location: https://elsewhere.test/v1"))


async def test_a_web_page_is_no_model() -> None:
    """Status 200 does not make it one."""
    with pytest.raises(ModelRefused, match=r"text/html and not with a stream.*base_url"):
        await ask(plain("200 OK", b"<html>Welcome", kind="text/html"))


SPOKEN = delta(content="Hel")
CUTS = {
    "before any byte": b"",
    "in the head": b"HTTP/1.1 200 OK\r\nContent-",
    "before the first token": CHUNKED,
    "after a token": CHUNKED + chunk(SPOKEN),
    "in mid-line": CHUNKED + chunk(SPOKEN + delta(content="lo")[:-30]),
    "in mid-chunk": CHUNKED + chunk(SPOKEN)[:-10],
    "in a body of known length": HEAD + b"Content-Length: 100000\r\n\r\n" + SPOKEN,
    "without a frame": UNTIL_EOF + SPOKEN,
    "in mid-line without a frame": UNTIL_EOF + SPOKEN + delta(content="lo")[:-30],
    "by a proper end": CHUNKED + chunk(SPOKEN) + b"0\r\n\r\n",
}


@pytest.mark.parametrize("cut", CUTS)
async def test_a_cut_stream_is_no_answer(cut: str) -> None:
    """What came of it is dropped and the turn tried again."""
    with pytest.raises(ModelUnavailable):
        await ask(raw(CUTS[cut]))


async def test_a_reset_is_no_answer() -> None:
    """The same, less politely."""

    async def answer(exchange: Exchange) -> None:
        await exchange.stream()
        await exchange.chunk(SPOKEN)
        exchange.reset()

    with pytest.raises(ModelUnavailable, match="in the middle of its answer"):
        await ask(answer)


@pytest.mark.parametrize("ending", [b"", servers.usage()])
async def test_a_stream_cut_after_its_finish_reason_is_whole(ending: bytes) -> None:
    """Nothing of the answer is missing; a second one would cost money."""
    turn = await ask(raw(CHUNKED + chunk(b"".join(servers.said("Hello you")) + ending)))

    assert turn == ModelTurn("Hello you", usage=Usage(10, 5) if ending else Usage(), finish="stop")


@pytest.mark.parametrize(
    "wrong",
    [
        b"data: {\n\n",
        b"data: not json\n\n",
        b'data: {"choices": 5}\n\n',
        b'data: {"choices": [{"delta": {"content": 5}}]}\n\n',
        b"data: \xff\n\n",
        b'data: ["x"]\n\n',
    ],
)
async def test_malformed_json_is_tried_again(wrong: bytes) -> None:
    """The message shows what came."""
    with pytest.raises(ModelUnavailable, match="no chat-completions JSON"):
        await ask(servers.events(SPOKEN, wrong, DONE))


async def test_what_is_no_http_is_tried_again() -> None:
    """Such as a port of something else."""
    with pytest.raises(ModelUnavailable, match="does not speak HTTP"):
        await ask(raw(b"SSH-2.0-OpenSSH_9.6\r\n"))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "overloaded", "code": 503}, ModelUnavailable),
        ({"message": "overloaded", "type": "server_error"}, ModelUnavailable),
        ({"message": "overloaded", "code": 429}, ModelUnavailable),
        ("overloaded", ModelUnavailable),
        ({"message": "overloaded", "code": 400}, ModelRefused),
        ({"message": "overloaded", "type": "invalid_request_error"}, ModelRefused),
    ],
)
async def test_an_error_in_the_stream_ends_the_turn(error: Any, kind: type[Exception]) -> None:
    """By what it says of itself."""
    with pytest.raises(kind, match="overloaded"):
        await ask(servers.events(SPOKEN, event(error=error)))


@pytest.mark.parametrize("content", [None, "", []])
async def test_an_empty_answer_is_tried_again(content: Any) -> None:
    """Nobody can use it."""
    with pytest.raises(ModelUnavailable, match="empty"):
        await ask(
            servers.events(delta(content=content), delta(finish="stop"), servers.usage(), DONE)
        )


async def test_content_in_parts_is_text_without_thoughts() -> None:
    """As some servers send it."""
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "Hello you"}, "?"]
    turn = await ask(servers.events(delta(content=parts), delta(finish="stop"), DONE))

    assert turn.text == "Hello you"


async def test_an_answer_cut_by_its_limit_says_so() -> None:
    """The turn has it as `finish`; without any text there is nothing to use."""
    assert (await ask(servers.speech("Hello", finish="length"))).finish == "length"
    with pytest.raises(ModelRefused, match="max_completion_tokens") as caught:
        await ask(servers.events(delta(finish="length"), servers.usage(), DONE))
    assert caught.value.used == (10, 5, 0)


async def test_a_refusal_is_no_answer_and_is_paid_for() -> None:
    """The model's words are in the error."""
    pieces = [delta(refusal="I cannot "), delta(refusal="do that."), delta(finish="stop")]
    with pytest.raises(ModelRefused, match="declines: I cannot do that") as caught:
        await ask(servers.events(*pieces, servers.usage(), DONE))
    assert caught.value.used == (10, 5, 0)


async def test_a_filtered_answer_is_no_answer() -> None:
    """Not even the part that came."""
    with pytest.raises(ModelRefused, match="content filter"):
        await ask(servers.events(SPOKEN, delta(finish="content_filter"), DONE))


async def test_a_second_choice_is_not_mixed_in() -> None:
    """Whoever sent it."""
    other = event(choices=[{"index": 1, "delta": {"content": "other"}}])
    turn = await ask(servers.events(delta(content="one"), other, delta(finish="stop"), DONE))

    assert turn.text == "one"


# Time.


def slow(*before: bytes) -> Answer:
    """Return an answer that stops without an end."""

    async def answer(exchange: Exchange) -> None:
        for piece in before:
            await exchange.send(piece)
        await exchange.gone()

    return answer


@pytest.mark.parametrize(
    ("answer", "times", "words"),
    [
        (slow(), {"first_byte": 0.05}, "nothing of its answer for 0.05 s"),
        (slow(CHUNKED), {"first_byte": 0.05}, "nothing of its answer for 0.05 s"),
        (slow(CHUNKED, chunk(SPOKEN)), {"between": 0.05}, "nothing more for 0.05 s"),
        (slow(CHUNKED, chunk(SPOKEN)), {"turn": 0.1}, "no whole answer within 0.1 s"),
    ],
)
async def test_each_silence_has_its_limit(answer: Answer, times: Any, words: str) -> None:
    """And the stream is closed at once."""
    with pytest.raises(ModelUnavailable, match=words):
        await ask(answer, timeouts=ModelTimeouts(**times))


async def test_drops_that_keep_coming_are_ended_by_the_turns_limit() -> None:
    """Comments are no answer."""

    async def answer(exchange: Exchange) -> None:
        await exchange.stream()
        while not exchange.writer.is_closing():
            await exchange.chunk(b": ping\n\n")
            await asyncio.sleep(0)

    with pytest.raises(ModelUnavailable, match="no whole answer within"):
        await ask(answer, timeouts=ModelTimeouts(turn=0.2, between=0.1))


async def test_nobody_to_connect_to() -> None:
    """Refused, unknown, or silent: each says where."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    gone = OpenAIChat("m", base_url=f"http://127.0.0.1:{port}", api_key="")
    with pytest.raises(ModelUnavailable, match=rf"no connection to 127\.0\.0\.1:{port}"):
        await gone.turn(request())


async def test_a_connection_has_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that never answers."""

    async def never(*_: Any, **__: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
    lost = OpenAIChat("m", base_url="http://h", api_key="", timeouts=ModelTimeouts(connect=0.05))
    with pytest.raises(ModelUnavailable, match=r"h:80 was not connected to within 0\.05 s"):
        await lost.turn(request())


async def test_a_cancel_closes_the_stream_at_once() -> None:
    """The server notices; the provider stops counting."""
    gone = asyncio.Event()
    begun = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.stream()
        await exchange.chunk(SPOKEN)
        await exchange.gone()
        gone.set()

    async with serving(answer) as server:
        task = asyncio.create_task(model(server).turn(request(lambda _: begun.set())))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gone.wait()


# Connections.


async def test_connections_are_used_again() -> None:
    """Also by another client of the same server, and by as many as are free."""
    async with serving(servers.speech("Hello you")) as server:
        first, second = model(server), model(server)
        for _ in range(3):
            assert await first.turn(request()) == await second.turn(request()) == GOOD
        assert server.connections == 1
        await asyncio.gather(*(first.turn(request()) for _ in range(8)))
        await asyncio.gather(*(first.turn(request()) for _ in range(8)))
        assert server.connections == 8


async def test_a_connection_with_an_error_is_used_again() -> None:
    """Its answer was whole."""
    async with serving(plain("500 Oops", b"{}"), servers.speech("Hello you")) as server:
        with pytest.raises(ModelUnavailable):
            await model(server).turn(request())
        assert await model(server).turn(request()) == GOOD
        assert server.connections == 1


async def test_a_connection_that_was_told_to_close_is_not_used_again() -> None:
    """Nor one whose stream was cut."""

    async def closing(exchange: Exchange) -> None:
        await exchange.head("Connection: close", "Content-Type: text/event-stream")
        await exchange.send(b"".join(servers.said("Hello")))
        exchange.cut()

    async with serving(closing, closing, servers.speech("Hello you")) as server:
        for _ in range(3):
            await model(server).turn(request())
        assert server.connections == 3


async def test_a_done_before_the_messages_end_is_an_end() -> None:
    """The turn does not wait for it, and the connection is used again once it came."""
    end, ended = asyncio.Event(), asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.stream()
        await exchange.chunk(b"".join(servers.said("Hello you")) + servers.usage() + DONE)
        await end.wait()
        await exchange.chunk(b"")
        ended.set()

    async with serving(answer) as server:
        assert await model(server).turn(request()) == GOOD
        end.set()
        await ended.wait()
        assert await model(server).turn(request()) == GOOD
        assert server.connections <= 2


async def test_a_server_may_close_between_two_requests() -> None:
    """Before the next one is sent, or at the very moment when it is."""
    closed = asyncio.Event()

    async def then_close(exchange: Exchange) -> None:
        await servers.speech("Hello you")(exchange)
        exchange.cut()
        closed.set()

    async def hang_up(exchange: Exchange) -> None:
        exchange.cut()

    good = servers.speech("Hello you")
    async with serving(then_close, good, hang_up, good) as server:
        assert await model(server).turn(request()) == GOOD
        await closed.wait()
        assert await model(server).turn(request()) == GOOD
        assert await model(server).turn(request()) == GOOD
        assert server.connections == 3
        assert len(server.seen) == 4


async def test_words_that_nobody_asked_for_end_the_connection() -> None:
    """They are not taken for the next answer."""
    told = asyncio.Event()

    async def chatty(exchange: Exchange) -> None:
        await servers.speech("Hello you")(exchange)
        await exchange.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        told.set()

    async with serving(chatty, servers.speech("Hello you")) as server:
        assert await model(server).turn(request()) == GOOD
        await told.wait()
        assert await model(server).turn(request()) == GOOD


async def test_an_announcement_before_the_answer_is_skipped() -> None:
    """100 Continue and its like."""
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    body = b"".join(servers.said("Hello you")) + servers.usage() + DONE
    assert await ask(raw(hint + CHUNKED + chunk(body) + b"0\r\n\r\n")) == GOOD


async def test_a_connection_that_nobody_uses_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a server or a firewall forgets it."""
    monkeypatch.setattr(pool, "_IDLE_SECONDS", 0.05)
    gone = asyncio.Event()
    async with serving(then_gone(gone)) as server:
        assert await model(server).turn(request()) == GOOD
        await gone.wait()


async def test_connections_end_with_their_loop() -> None:
    """Nobody has to close a client."""
    gone = asyncio.Event()
    async with serving(then_gone(gone)) as server:
        turn = model(server).turn(request())
        assert await asyncio.to_thread(asyncio.run, turn) == GOOD
        await gone.wait()


def then_gone(gone: asyncio.Event) -> Answer:
    """Return a good answer that tells when the client has left after it."""

    async def answer(exchange: Exchange) -> None:
        await servers.speech("Hello you")(exchange)
        await exchange.gone()
        gone.set()

    return answer


# TLS.


@pytest.fixture
async def secure(tmp_path: Path) -> AsyncIterator[servers.ModelServer]:
    """A server behind TLS."""
    tls = servers.server_tls(tmp_path)
    async with serving(servers.speech("Hello you"), tls=tls) as server:
        yield server


async def test_tls_is_spoken_and_kept(secure: servers.ModelServer) -> None:
    """One handshake for all turns."""
    client = model(secure, tls=servers.client_tls())
    for _ in range(3):
        assert await client.turn(request()) == GOOD
    assert secure.connections == 1


async def test_a_certificate_must_be_trusted(secure: servers.ModelServer) -> None:
    """The key is not sent to anybody else."""
    with pytest.raises(ModelRefused, match=r"certificate of localhost.* is not trusted: self"):
        await model(secure).turn(request())
    assert secure.seen == []


async def test_plain_text_behind_a_tls_url() -> None:
    """No handshake, no request."""
    async with serving(servers.speech("Hello you")) as server:
        server.secure = True
        impatient = model(server, timeouts=ModelTimeouts(connect=0.1))
        with pytest.raises(ModelUnavailable, match=r"localhost:.* was not connected to"):
            await impatient.turn(request())
        assert server.seen == []


class Noted(bytearray):
    """Bytes of which one can tell whether anybody has them."""


async def test_a_request_is_not_kept_while_its_answer_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It holds all of a conversation, and a thousand runs wait for their answers at once."""
    sent: list[weakref.ref[Noted]] = []
    going_on = asyncio.Event()

    def noted(body: bytes) -> bytes:
        made = Noted(real(body))
        sent.append(weakref.ref(made))
        return made  # type: ignore[return-value]

    async def half(exchange: Exchange) -> None:
        await exchange.stream()
        await exchange.chunk(delta(content="Hello"))
        await going_on.wait()
        for piece in (*servers.said(" you"), servers.usage(), DONE, b""):
            await exchange.chunk(piece)

    async with serving(half) as server:
        chat = model(server)
        real = chat._endpoint.request
        monkeypatch.setattr(chat._endpoint, "request", noted)
        heard = asyncio.Event()
        turn = asyncio.create_task(chat.turn(request(lambda _: heard.set())))
        await heard.wait()
        left = [one() for one in sent]
        going_on.set()
        await turn

    assert left == [None]

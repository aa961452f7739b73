"""The parts of the models' client alone: events, ticks, requests, and what is refused at once."""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock import (
    AgentDefinitionError,
    ModelRequest,
    ModelTimeouts,
    OpenAIChat,
    Prices,
)
from rowlock.agents.messages import system_message, user_message
from rowlock.models.body import Bodies
from rowlock.models.chunks import TokenCount, _Details
from rowlock.models.connection import Connection
from rowlock.models.endpoint import Origin
from rowlock.models.events import Events
from rowlock.models.forms import Forms
from rowlock.models.hearing import Hearing
from rowlock.models.tick import (
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    Tick,
    period,
    share,
    slice_seconds,
)
from tests import model_servers as servers

MESSAGES = [system_message("Be brief."), user_message("Hello")]
MEGABYTE = 1_000_000


def request(**fields: Any) -> ModelRequest:
    """Return a question."""
    given: dict[str, Any] = {"tools": b"[]", "output_schema": None, "emit": lambda _: None}
    return ModelRequest(1, MESSAGES, **{**given, **fields})


# Events.


@given(
    data=st.lists(st.binary(max_size=8).filter(lambda d: not {10, 13} & set(d)), max_size=6),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    cuts=st.lists(st.integers(0, 200), max_size=8),
)
def test_events_do_not_depend_on_how_they_are_cut(
    data: list[bytes], end: bytes, cuts: list[int]
) -> None:
    """Any data, any line end, any pieces."""
    stream = b"".join(b"data: " + one + end + b": comment" + end + end for one in data)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    events = Events()

    found = [event for a, b in pairwise(places) for event in events.feed(stream[a:b])]

    assert found + events.rest() == data


def test_lines_of_data_belong_together_until_an_empty_one() -> None:
    """As the standard says."""
    assert Events().feed(b"data: a\ndata:b\ndata\n\ndata: c\n\n") == [b"a\nb", b"c"]


def calls_of(work: Any) -> int:
    """Return how many calls of Python or C functions `work` makes."""
    made = 0

    def profile(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


class Joins(bytes):
    """A byte that counts how often it is copied into something longer."""

    copies = 0

    def __add__(self, other: Any) -> bytes:
        """Count."""
        Joins.copies += 1
        return super().__add__(other)

    def __radd__(self, other: Any) -> bytes:
        """Count."""
        Joins.copies += 1
        return bytes(other) + bytes(self)


def test_a_long_line_in_one_byte_pieces_is_joined_once() -> None:
    """A megabyte: so many calls a byte as for a hundredth of it, and no copy on the way."""

    def feed(size: int) -> int:
        events, piece = Events(), Joins(b"x")
        events.feed(b"data: ")

        def work() -> None:
            for _ in range(size):
                events.feed(piece)
            assert events.feed(b"\n\n") == [b"x" * size]

        return calls_of(work)

    small, large = feed(MEGABYTE // 100), feed(MEGABYTE)

    assert large <= 100 * small
    assert Joins.copies == 0


# The tick.


@pytest.mark.parametrize(
    ("streams", "seconds"), [(0, 0.005), (1, 0.005), (50, 0.005), (500, 0.05), (5000, 0.1)]
)
def test_the_tick_grows_with_the_streams(streams: int, seconds: float) -> None:
    """From 5 ms to 100 ms."""
    assert period(streams) == pytest.approx(seconds)


@given(st.integers(0, 10_000))
def test_every_stream_has_a_turn_in_each_period(streams: int) -> None:
    """The rounds of a period serve all of them, and no round all at once when they are many."""
    rounds = period(streams) / slice_seconds(streams)
    assert SHORTEST_SECONDS <= slice_seconds(streams) <= period(streams) <= LONGEST_SECONDS
    assert share(streams) * rounds >= streams
    assert streams < 1000 or share(streams) <= streams / 4


class StillLoop:
    """A loop whose time a test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Any]] = []

    def time(self) -> float:
        """Return the time."""
        return self.now

    def call_at(self, when: float, callback: Any) -> Any:
        """Keep a timer."""
        self.timers.append((when, callback))
        return object()

    def advance(self) -> None:
        """Go to the next timer."""
        self.now, callback = self.timers.pop(0)
        callback()


class Listener:
    """A stream that wants so many turns."""

    def __init__(self, loop: StillLoop, turns: int) -> None:
        self.at: list[float] = []
        self._loop = loop
        self._turns = turns

    def read_on(self) -> bool:
        """Note the turn."""
        self.at.append(self._loop.now)
        return len(self.at) < self._turns


def test_a_stream_is_read_once_a_tick_and_the_tick_stops_when_none_is_left() -> None:
    """A few streams: every 5 ms."""
    loop = StillLoop()
    tick = Tick(loop)  # type: ignore[arg-type]
    streams = [Listener(loop, 3), Listener(loop, 2)]
    tick.streams = 2
    for stream in streams:
        tick.wait(stream)
    while loop.timers:
        loop.advance()

    assert streams[0].at == pytest.approx([0.005, 0.010, 0.015])
    assert streams[1].at == pytest.approx([0.005, 0.010])


def test_streams_that_begin_together_spread_over_the_tick() -> None:
    """A thousand at one instant: no round serves more than its share, and none is forgotten."""
    loop = StillLoop()
    tick = Tick(loop)  # type: ignore[arg-type]
    streams = [Listener(loop, 5) for _ in range(1000)]
    tick.streams = 1000
    for stream in streams:
        tick.wait(stream)
    rounds: dict[float, int] = {}
    while loop.timers:
        loop.advance()
        rounds[loop.now] = sum(loop.now in stream.at for stream in streams)

    assert max(rounds.values()) <= share(1000) < 250
    assert all(len(stream.at) == 5 for stream in streams)
    gaps = [b - a for stream in streams for a, b in pairwise(stream.at)]
    assert min(gaps) >= LONGEST_SECONDS * 0.99


def test_a_loop_that_is_late_serves_all_that_wait() -> None:
    """Else a thousand streams would need five rounds of a loop that has no time for them."""
    loop = StillLoop()
    tick = Tick(loop)  # type: ignore[arg-type]
    streams = [Listener(loop, 1) for _ in range(1000)]
    tick.streams = 1000
    for stream in streams:
        tick.wait(stream)
    late, callback = loop.timers.pop(0)
    loop.now = late + 0.5
    callback()

    assert all(stream.at == [loop.now] for stream in streams)


# A connection, without a network.


class Wire:
    """A transport that notes when its reading is stopped."""

    def __init__(self) -> None:
        self.reading = True
        self.closed = False
        self.pauses = 0

    def pause_reading(self) -> None:
        """Stop."""
        assert self.reading
        self.reading = False
        self.pauses += 1

    def resume_reading(self) -> None:
        """Go on."""
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        """Tell."""
        return self.closed

    def abort(self) -> None:
        """End."""
        self.closed = True

    def write(self, _data: bytes) -> None:
        """Take."""


class Keeper:
    """Who gets connections back."""

    def __init__(self) -> None:
        self.kept: list[Connection] = []

    def keep(self, connection: Connection) -> None:
        """Note."""
        self.kept.append(connection)

    def forget(self, connection: Connection) -> None:
        """Nothing to note."""


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Line:
    """A connection in the middle of an exchange."""

    def __init__(self, *, watched: bool) -> None:
        self.texts: list[str] = []
        self.wire, self.keeper = Wire(), Keeper()
        self.tick = Tick(asyncio.get_running_loop())
        self.connection = Connection(self.tick, self.keeper, Origin("h", 80, None))
        self.connection.use(self.wire, self.wire)  # type: ignore[arg-type]
        asked = request(emit=self.texts.append, watched=lambda: watched)
        self.hearing = Hearing(asked, cost=lambda _: 0, redact=str)
        self.task = asyncio.ensure_future(
            self.connection.exchange(bytes, self.hearing, first_byte=9, between=9)
        )

    def says(self, data: bytes) -> None:
        """Let a piece arrive, as a socket gives it: never while reading is stopped."""
        if not self.wire.reading:
            self.connection.read_on()
        self.connection.data_received(data)


def chunked(data: bytes) -> bytes:
    """Return a chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


async def test_reading_stops_from_the_first_token_on() -> None:
    """Head and role are read as they come; then once a tick."""
    line = Line(watched=True)
    await asyncio.sleep(0)
    line.says(HEAD)
    line.says(chunked(servers.delta(role="assistant", content="")))
    assert line.wire.reading

    line.says(chunked(servers.delta(content="Hel")))

    assert (line.texts, line.wire.reading, line.tick.streams) == (["Hel"], False, 1)
    line.says(chunked(servers.delta(content="lo")) + chunked(servers.delta(content=" you")))
    assert (line.texts, line.wire.pauses) == (["Hel", "lo you"], 2)
    line.says(chunked(servers.delta(finish="stop") + servers.DONE) + b"0\r\n\r\n")
    await line.task
    assert (line.tick.streams, line.wire.reading) == (0, True)
    assert line.keeper.kept == [line.connection]


async def test_what_nobody_watches_is_decoded_at_the_end() -> None:
    """No text comes out, and the parser is not asked before the last piece."""
    line = Line(watched=False)
    await asyncio.sleep(0)
    line.says(HEAD + chunked(servers.delta(content="Hel")))
    for _ in range(50):
        line.says(chunked(servers.delta(content="lo")))
    assert line.hearing._assembly.text == "Hel"

    line.says(chunked(servers.delta(finish="stop") + servers.DONE) + b"0\r\n\r\n")
    await line.task

    assert line.texts == []
    assert line.hearing.turn().text == "Hel" + "lo" * 50


async def test_what_nobody_watches_is_decoded_in_blocks_when_it_is_long() -> None:
    """So that a thousand long answers do not fill the memory."""
    line = Line(watched=False)
    await asyncio.sleep(0)
    line.says(HEAD + chunked(servers.delta(content="a")))
    for _ in range(2000):
        line.says(chunked(servers.delta(content="a")))
        assert line.connection._pending_bytes < 65_536
    line.task.cancel()
    await asyncio.wait([line.task])
    assert len(line.hearing._assembly.text) > 1500


async def test_a_quiet_stream_is_decoded_as_far_as_it_came() -> None:
    """However its end was cut: after a tick without anything new, what waits is looked at."""
    line = Line(watched=False)
    await asyncio.sleep(0)
    line.says(HEAD + chunked(servers.delta(content="Hello")))
    ending = chunked(servers.delta(finish="stop") + b"data: [DO")
    line.says(ending)
    line.says(chunked(b"NE]\n\n"))

    assert line.connection.read_on()  # reads on
    assert not line.connection.read_on()  # nothing came

    await line.task
    assert line.hearing.turn().text == "Hello"


async def test_one_byte_reads_take_so_many_calls_a_byte() -> None:
    """Ten times the bytes, ten times the work, from the socket to the turn."""

    async def work(size: int) -> int:
        line = Line(watched=False)
        await asyncio.sleep(0)
        body = servers.delta(content="x" * size) + servers.delta(finish="stop") + servers.DONE
        line.says(HEAD + b"%x\r\n" % len(body))

        def drip() -> None:
            for place in range(len(body)):
                line.says(body[place : place + 1])

        made = calls_of(drip)
        line.says(b"\r\n0\r\n\r\n")
        await line.task
        assert line.hearing.turn().text == "x" * size
        return made

    small, large = await work(10_000), await work(100_000)

    assert large <= 10.1 * small


# Requests.


def body(bodies: Bodies, form: Any = "prompt", **fields: Any) -> dict[str, Any]:
    """Return a request's body."""
    return msgspec.json.decode(bodies.body(request(**fields), form))  # type: ignore[no-any-return]


OBJECT = b'{"type":"object","properties":{"a":{"type":"integer"}}}'


def test_a_body_is_what_the_api_asks_for() -> None:
    """Options are added, and None leaves out what is sent otherwise."""
    bodies = Bodies("m", {"temperature": 0, "stream_options": None})

    assert body(bodies, tools=b'[{"type":"function"}]') == {
        "model": "m",
        "stream": True,
        "temperature": 0,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
        ],
        "tools": [{"type": "function"}],
    }


@pytest.mark.parametrize(
    ("how", "schema", "field"),
    [
        ("json_schema", OBJECT, {"type": "json_schema", "json_schema": {"name": "answer"}}),
        ("json_object", OBJECT, {"type": "json_object"}),
        ("prompt", OBJECT, None),
        ("strict", b'{"type":"array"}', None),
        ("json_schema", b'{"type":"array"}', None),
        ("json_object", b'{"type":"array"}', None),
    ],
)
def test_a_typed_answer_is_asked_for(how: Any, schema: bytes, field: Any) -> None:
    """By `response_format` where that can be, else in words; the conversation stays as it is."""
    sent = body(Bodies("m", {}), next(Forms(how).of(schema)), output_schema=schema)

    if field and "json_schema" in field:
        field["json_schema"]["schema"] = msgspec.json.decode(schema)
        assert sent["messages"][0]["content"] == "Be brief."
    else:
        assert sent["messages"][0]["content"].endswith("JSON of this schema:\n" + schema.decode())
    assert sent.get("response_format") == field
    assert MESSAGES[0] == system_message("Be brief.")


def test_prices_make_costs() -> None:
    """Dollars for a million tokens are millionths of a dollar for one."""
    tokens = TokenCount(1000, 100, _Details(600))

    assert Prices(2.5, 10).cost_micro(tokens) == 2500 + 1000
    assert Prices(2.5, 10, cached_input=0.25).cost_micro(tokens) == 1000 + 150 + 1000


# What is refused when it is written down.


def test_a_missing_key_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line with the variable's name."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(AgentDefinitionError, match=r"OpenAIChat\('m'\).*OPENAI_API_KEY") as caught:
        OpenAIChat("m")
    assert "\n" not in str(caught.value)
    with pytest.raises(AgentDefinitionError, match="OTHER_KEY"):
        OpenAIChat("m", api_key_env="OTHER_KEY")


def test_the_environment_has_key_and_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newline at a secret's end does no harm; a representation never shows it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret\n")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere:8000/v1/")

    model = OpenAIChat("m")

    assert repr(model) == "OpenAIChat('m', base_url='http://elsewhere:8000/v1')"
    sent = model._endpoint.request(b"{}")
    assert sent.startswith(b"POST /v1/chat/completions HTTP/1.1\r\nHost: elsewhere:8000\r\n")
    assert b"\r\nAuthorization: Bearer sk-secret\r\n" in sent
    assert "sk-secret" not in repr(vars(model))


def test_a_query_and_headers_are_kept() -> None:
    """As some providers want it."""
    model = OpenAIChat(
        "m", base_url="https://h/d?api-version=1", api_key="", headers={"api-key": "secret-1"}
    )
    sent = model._endpoint.request(b"{}")

    assert sent.startswith(b"POST /d/chat/completions?api-version=1 HTTP/1.1\r\n")
    assert b"Authorization" not in sent
    assert model._endpoint.without_secrets("bad secret-1!") == "bad …!"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": " "}, "needs a name"),
        ({"api_key": "a b"}, "characters that no key has"),
        ({"api_key": "a\r\nX: y"}, "characters that no key has"),
        ({"api_key": "ключ"}, "characters that no key has"),
        ({"base_url": "h/v1"}, "must look like https://host/v1"),
        ({"base_url": "ftp://h/v1"}, "must look like"),
        ({"base_url": "http://"}, "must look like"),
        ({"base_url": "http://h:99999/"}, "must look like"),
        ({"base_url": "http://[h/"}, "must look like"),
        ({"base_url": "http://h/ v1"}, "must look like"),
        ({"base_url": "http://user:pass@h/v1"}, "may hold no password"),
        ({"headers": {"X": "a\nb"}}, "'X' cannot be sent"),
        ({"headers": {"X Y": "a"}}, "'X Y' cannot be sent"),
        ({"headers": {"content-length": "5"}}, "set by the client"),
        ({"options": {"stream": False}}, "'stream' is set by the client"),
        ({"options": {"temperature": object()}}, "must be JSON"),
        ({"structured_output": "xml"}, "not one of strict, json_schema"),
    ],
)
def test_what_no_request_could_go_out_with_is_refused(options: Any, words: str) -> None:
    """Where it is written, with the cure."""
    given = {"model": "m", "api_key": "k", "base_url": "http://h/v1", **options}
    with pytest.raises(AgentDefinitionError, match=words) as caught:
        OpenAIChat(given.pop("model"), **given)
    assert "pass@" not in str(caught.value)


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), "5", None])
def test_a_timeout_is_a_positive_number(seconds: Any) -> None:
    """None would be for ever."""
    with pytest.raises(AgentDefinitionError, match="between="):
        ModelTimeouts(between=seconds)

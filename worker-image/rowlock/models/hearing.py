"""One answer as it comes in, from the head of the response to a finished turn."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import msgspec

from rowlock.agents.messages import ModelRequest, ModelTurn, Usage
from rowlock.agents.problems import cut
from rowlock.errors import ModelRefused, ModelUnavailable
from rowlock.models.chunks import Assembly, TokenCount
from rowlock.models.events import Events
from rowlock.models.faults import Redact, from_status

#: More than any answer that could be stored, counted before it is decoded.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
_MAX_ERROR_BYTES = 65_536

_Cost = Callable[[TokenCount], int]


class Hearing:
    """`rowlock.models.connection.Sink` of one turn.

    Parameters
    ----------
    cost
        Millionths of a US dollar for what was used.
    redact
        Takes out of a server's words what nobody may read.
    """

    def __init__(self, request: ModelRequest, *, cost: _Cost, redact: Redact) -> None:
        self.watched = request.watched
        self._request = request
        self._cost = cost
        self._redact = redact
        self._assembly = Assembly(redact)
        self._events = Events()
        self._status = 0
        self._headers: dict[bytes, bytes] = {}
        self._streams = False
        self._zipped = False
        #: Takes gzip and zlib's own format.
        self._unzip = zlib.decompressobj(wbits=47).decompress
        self._bytes = 0
        self._whole: list[bytes] = []

    @property
    def begun(self) -> bool:
        """The model has said something."""
        return self._assembly.begun

    @property
    def whole(self) -> bool:
        """Nothing of the answer is missing, however its stream ended; a refusal says enough."""
        if self._status != 200:
            return self._status > 0
        return self._streams and self._assembly.whole

    def head(self, status: int, headers: dict[bytes, bytes]) -> bool:
        """Take status and headers; return whether a stream of events follows."""
        self._status, self._headers = status, headers
        kind = headers.get(b"content-type", b"")
        self._streams = status == 200 and kind.lower().startswith(b"text/event-stream")
        encoding = headers.get(b"content-encoding", b"identity").lower()
        if encoding in (b"gzip", b"x-gzip", b"deflate"):
            self._zipped = True
        return self._streams

    def body(self, data: bytes) -> bool:
        """Take a piece of the body; return whether nothing more is needed.

        Raises
        ------
        ModelUnavailable
            It is not what the API sends, or the server says that it cannot go on.
        ModelRefused
            It is too large, or the server says that it will not.
        """
        if self._zipped:
            data = self._unzipped(data)
        self._bytes += len(data)
        if not self._streams:
            return self._keep(data)
        if self._bytes > MAX_ANSWER_BYTES:
            raise ModelRefused(f"the model's answer is larger than {MAX_ANSWER_BYTES} bytes")
        self._add(self._events.feed(data))
        return self._assembly.done

    def turn(self) -> ModelTurn:
        """Return the turn.

        Raises
        ------
        ModelUnavailable
            There is no whole answer.
        ModelRefused
            There will be none.
        """
        if self._status != 200:
            raise from_status(
                self._status, self._headers, b"".join(self._whole), redact=self._redact
            )
        if not self._streams:
            self._decode_whole()
        elif not self.whole:
            self._add(self._events.rest())
        return self._finished()

    def _keep(self, data: bytes) -> bool:
        """Keep a body that is no stream; of an error only what a person may want to read."""
        limit = MAX_ANSWER_BYTES if self._status == 200 else _MAX_ERROR_BYTES
        self._whole.append(data)
        return self._bytes > limit

    def _unzipped(self, data: bytes) -> bytes:
        try:
            return self._unzip(data, MAX_ANSWER_BYTES)
        except zlib.error as error:
            raise ModelUnavailable(
                f"the model's server sent bytes that are no gzip: {error}"
            ) from error

    def _add(self, events: list[bytes]) -> None:
        try:
            self._assembly.add(events)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._malformed(b"".join(events), error) from error
        if self.watched():
            text = self._assembly.fresh()
            if text:
                self._request.emit(text)

    def _decode_whole(self) -> None:
        """Take the answer of a server that did not stream, if that is what it is."""
        body = b"".join(self._whole)
        kind = self._headers.get(b"content-type", b"").decode("latin-1")
        if not kind.lower().startswith("application/json"):
            raise ModelRefused(
                f"the model's server answered with {kind or 'no content type'} "
                "and not with a stream of events: is base_url right?"
            )
        self._add([body])

    def _malformed(self, said: bytes, error: Exception) -> ModelUnavailable:
        shown = cut(self._redact(said.decode("utf-8", "replace")), 120)
        return ModelUnavailable(
            f"the model's server sent no chat-completions JSON: {error}: {shown}"
        )

    def _finished(self) -> ModelTurn:
        have = self._assembly
        if not have.whole:
            raise ModelUnavailable(
                "the model's server ended its stream in the middle of the answer"
            )
        tokens = have.tokens
        used = (tokens.prompt_tokens or 0, tokens.completion_tokens or 0, self._cost(tokens))
        calls = have.calls(self._request.turn)
        if have.refusal and not calls:
            raise ModelRefused(f"the model declines: {cut(have.refusal, 400)}", used=used)
        if have.finish == "content_filter":
            raise ModelRefused("the model's answer was withheld by a content filter", used=used)
        if not have.text and not calls:
            raise self._empty(used)
        return ModelTurn(have.text, calls, Usage(*used), have.finish)

    def _empty(self, used: tuple[int, int, int]) -> ModelRefused | ModelUnavailable:
        if self._assembly.finish == "length":
            return ModelRefused(
                "the model had used up its tokens before it said anything: "
                "raise max_completion_tokens in options",
                used=used,
            )
        return ModelUnavailable("the model's answer is empty")

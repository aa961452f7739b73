"""`OpenAIChat`: a model behind any server that speaks the chat-completions API."""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from rowlock.agents.messages import ModelRequest, ModelTurn
from rowlock.errors import AgentDefinitionError, ModelRefused, ModelUnavailable
from rowlock.models.body import Bodies
from rowlock.models.chunks import TokenCount
from rowlock.models.connection import Request
from rowlock.models.endpoint import Endpoint, checked_key, checked_url
from rowlock.models.faults import Cut, FormRefused
from rowlock.models.forms import Forms, StructuredOutput
from rowlock.models.hearing import Hearing
from rowlock.models.pool import pool_of_loop


@dataclass(frozen=True, slots=True)
class ModelTimeouts:
    """How long a turn may take, in seconds; what takes longer is tried again.

    Parameters
    ----------
    connect
        Until the connection stands, TLS included.
    first_byte
        From the request to the first byte of the answer; a model may think before it.
    between
        From then on, until something more comes.
    turn
        For the whole turn.
    """

    connect: float = 10.0
    first_byte: float = 180.0
    between: float = 120.0
    turn: float = 900.0

    def __post_init__(self) -> None:
        """Refuse what is no time."""
        for field in fields(self):
            seconds = getattr(self, field.name)
            if not (isinstance(seconds, int | float) and 0 < seconds < math.inf):
                raise AgentDefinitionError(
                    f"ModelTimeouts({field.name}={seconds!r}) must be a positive number of seconds."
                )


@dataclass(frozen=True, slots=True)
class Prices:
    """What a model costs, in US dollars for a million tokens; budgets count with it.

    Parameters
    ----------
    cached_input
        For tokens of the prompt that the provider had seen before; None: as `input`.
    """

    input: float
    output: float
    cached_input: float | None = None

    def cost_micro(self, tokens: TokenCount) -> int:
        """Return what a turn costs, in millionths of a US dollar."""
        cached = tokens.cached
        fresh = (tokens.prompt_tokens or 0) - cached
        cached_price = self.input if self.cached_input is None else self.cached_input
        said = tokens.completion_tokens or 0
        return round(fresh * self.input + cached * cached_price + said * self.output)


class OpenAIChat:
    """A `Model` behind OpenAI's API or any other that speaks chat completions.

    Parameters
    ----------
    model
        The server's name of the model.
    base_url
        Up to and without `/chat/completions`;
        None: the environment's OPENAI_BASE_URL, else OpenAI's own.
    api_key
        None: the environment's `api_key_env`. Empty for a server that asks for none.
    timeouts
        How long a turn may take.
    prices
        What to count as a run's cost; None counts tokens only.
    options
        Further fields of the request, such as `temperature`;
        None leaves a field out that is sent otherwise, such as `stream_options`.
    headers
        Further headers of the request.
    structured_output
        How an agent's `output` type is asked for: in a `strict` schema, to which the server holds
        the model, where the type has one; as `json_schema`; as `json_object` with the schema among
        the instructions; or by `prompt` alone. A server that refuses one form is asked in the next.
        The answer is checked in any case.
    tls
        How to check the server's certificate; None for the system's certificates.

    Raises
    ------
    AgentDefinitionError
        There is no key, or something else that no request could go out with.
    """

    def __init__(  # noqa: PLR0913 (what a server may need to be told)
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        timeouts: ModelTimeouts | None = None,
        prices: Prices | None = None,
        options: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        structured_output: StructuredOutput = "strict",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.name = _checked_name(model)
        self._endpoint = Endpoint(
            checked_url(base_url),
            api_key=checked_key(api_key, api_key_env, owner=f"OpenAIChat({model!r})"),
            headers=headers or {},
            tls=tls,
        )
        self._bodies = Bodies(model, options or {})
        self._forms = Forms(structured_output)
        self._timeouts = timeouts or ModelTimeouts()
        self._prices = prices

    def __repr__(self) -> str:
        """Say which model it is, and where; never the key."""
        return f"OpenAIChat({self.name!r}, base_url={self._endpoint.url!r})"

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Ask once and return the whole answer; a cancel closes the stream at once.

        Raises
        ------
        ModelUnavailable
            There is no whole answer now; the step tries again.
        ModelRefused
            The same question would be refused again.
        """
        try:
            async with asyncio.timeout(self._timeouts.turn):
                return await self._ask_until_taken(request)
        except TimeoutError as error:
            raise ModelUnavailable(
                f"the model gave no whole answer within {self._timeouts.turn:g} s"
            ) from error

    async def _ask_until_taken(self, request: ModelRequest) -> ModelTurn:
        """Ask in one form after the other until the server takes one."""
        schema = request.output_schema
        refused: FormRefused | None = None
        for form in self._forms.of(schema):
            try:
                turn = await self._ask(request, form)
            except FormRefused as error:
                refused = refused or error
                continue
            if refused is not None and schema is not None:
                self._forms.taken(schema, form, model=self.name, said=str(refused))
            return turn
        raise ModelRefused(str(refused)) from refused

    async def _ask(self, request: ModelRequest, form: StructuredOutput) -> ModelTurn:
        hearing = Hearing(request, cost=self._cost, redact=self._endpoint.without_secrets)
        try:
            await self._exchange(partial(self._request, request, form), hearing)
        except Cut:
            # What is complete but for its cost is worth more than a second answer.
            if not hearing.whole:
                raise
        return hearing.turn()

    def _request(self, request: ModelRequest, form: StructuredOutput) -> bytes:
        return self._endpoint.request(self._bodies.body(request, form))

    async def _exchange(self, request: Request, hearing: Hearing) -> None:
        times = self._timeouts
        pool = await pool_of_loop()
        await pool.exchange(
            self._endpoint.origin,
            request,
            hearing,
            connect=times.connect,
            first_byte=times.first_byte,
            between=times.between,
        )

    def _cost(self, tokens: TokenCount) -> int:
        return self._prices.cost_micro(tokens) if self._prices else 0


def _checked_name(model: str) -> str:
    if isinstance(model, str) and model.strip():
        return model
    raise AgentDefinitionError(f"OpenAIChat({model!r}): a model needs a name.")

"""The agent that every worker image has: shows that an installation carries a run to its end.

Name it in an Agent as `rowlock.hello:hello`; `helm test` does.
"""

from __future__ import annotations

from pydantic import BaseModel

from rowlock import Run, agent


class Greeting(BaseModel):
    """Whom to greet."""

    name: str = "world"


async def _greet(name: str) -> str:
    return f"Hello, {name}!"


@agent(name="hello")
async def hello(run: Run, greeting: Greeting) -> str:
    """Greet somebody, in one recorded step."""
    return await run.step("greet", _greet, greeting.name)

"""A pytest plugin: fixtures for tests of agents, there wherever Rowlock is installed.

| fixture | is |
|---|---|
| `trial` | `rowlock.testing.Trials`: `await trial(agent, value)` begins a run to crash at will |
| `memory_store` | an empty `rowlock.testing.MemoryStore` |
| `run_agent` | `rowlock.testing.run_agent`: an agent against nothing but a history |

Every pytest of the environment loads this module, also for projects that only have Rowlock
installed. So it stands outside of the package, and imports nothing of it before a fixture is asked
for: loading it costs a millisecond, and tools that measure coverage see all of Rowlock's imports.

An `async def` test that uses one of the fixtures needs no further plugin: it is run here, with
`asyncio.run`. Where pytest-asyncio or anyio takes care of a test, that is left to them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rowlock.testing import MemoryStore, Trials

#: Set for a test that uses one of the fixtures of this module, not one of the same name.
_USED = pytest.StashKey[bool]()
_TRIALS = pytest.StashKey["Trials"]()


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> Trials:
    """Begin trials of agents: `await trial(agent, value)`; told of when the test fails."""
    from rowlock.testing import Trials  # noqa: PLC0415  see above

    trials = Trials()
    request.node.stash[_USED] = True
    request.node.stash[_TRIALS] = trials
    return trials


@pytest.fixture
def memory_store(request: pytest.FixtureRequest) -> MemoryStore:
    """An empty store in memory, on a clock that stands still."""
    from rowlock.testing import MemoryStore  # noqa: PLC0415  see above

    request.node.stash[_USED] = True
    return MemoryStore()


@pytest.fixture
def run_agent(request: pytest.FixtureRequest) -> Callable[..., Awaitable[Any]]:
    """Run an agent to its end: `await run_agent(agent, value)` is its result."""
    from rowlock.testing import run_agent as run  # noqa: PLC0415  see above

    request.node.stash[_USED] = True
    return run


@pytest.hookimpl
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test that uses one of the fixtures and that nobody else runs."""
    test = pyfuncitem.obj
    if _USED not in pyfuncitem.stash or not inspect.iscoroutinefunction(test):
        return None
    import asyncio  # noqa: PLC0415  pytest itself does without

    given = pyfuncitem.funcargs
    asyncio.run(test(**{name: given[name] for name in inspect.signature(test).parameters}))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the trials of a test that failed."""
    report = yield
    trials = item.stash.get(_TRIALS, None)
    if call.when == "call" and report.failed and trials is not None and trials.begun:
        report.sections.append(("rowlock trials", trials.story()))
    return report

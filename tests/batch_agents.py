"""The agent whose items the tests of batches run in real workers.

The first word of an item's text says what to do: it fails with `fail-…`,
and with `…gate-NAME-…` it waits until the test makes the file `gate-NAME`.
Each start and each end leaves a line in the folder that `BATCH_FOLDER` names.
"""

from __future__ import annotations

import os
from pathlib import Path

from rowlock import Run, agent
from tests.agents_for_tests import gate, leave_effect


@agent(name="handle")
async def handle(run: Run, text: str) -> str:
    """Do what the item says."""
    folder, word = Path(os.environ["BATCH_FOLDER"]), text.split(maxsplit=1)[0]

    async def begin() -> None:
        leave_effect(folder, "start", run.id, word)

    async def end() -> None:
        leave_effect(folder, "end", run.id, word)

    await run.step("begin", begin)
    if "gate-" in word:
        await run.step("wait", gate, folder, word.partition("gate-")[2].partition("-")[0])
    await run.step("end", end)
    if word.startswith("fail"):
        raise RuntimeError("this item fails")
    return word

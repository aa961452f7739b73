"""A real Prometheus for tests, on the loopback: Debian's package `prometheus`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.operators import eventually, free_port

MISSING = shutil.which("prometheus") is None
NEEDED = "needs Debian's package prometheus: apt-get install --no-install-recommends prometheus"


class Refused(Exception):
    """Prometheus does not understand a query."""


class Prometheus:
    """One server, which scrapes each process every second.

    Parameters
    ----------
    folder
        Place of its data, configuration and log.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._url = f"http://127.0.0.1:{free_port()}"
        self._targets: dict[str, dict[str, str]] = {}

    def scrape(self, port: int, **labels: str) -> None:
        """Scrape a process from now on, as the chart's monitors would; `instance` names it."""
        self._targets[f"127.0.0.1:{port}"] = labels
        found = [{"targets": [at], "labels": given} for at, given in self._targets.items()]
        # Prometheus may read it at any time: never half of it.
        fresh = self._folder / "targets.fresh"
        fresh.write_text(json.dumps(found))
        fresh.replace(self._folder / "targets.json")

    def forget(self, port: int) -> None:
        """Scrape a process no longer."""
        del self._targets[f"127.0.0.1:{port}"]

    async def now(self, query: str) -> list[dict[str, Any]]:
        """Return the series of a query, each with its value of now."""
        return await self._ask("query", query=query)

    async def over(
        self, query: str, *, start: float, end: float, step: float
    ) -> list[dict[str, Any]]:
        """Return the series of a query, each with its values between two times in seconds."""
        times = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        return await self._ask("query_range", query=query, **times)

    async def finds(self, query: str) -> list[dict[str, Any]]:
        """Wait until a query has a series, and return them."""

        async def look() -> list[dict[str, Any]]:
            try:
                return await self.now(query)
            except aiohttp.ClientConnectionError:
                return []

        return await eventually(look, f"series of {query}")

    async def _ask(self, path: str, **parameters: str) -> list[dict[str, Any]]:
        url = f"{self._url}/api/v1/{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=parameters) as answer,
        ):
            body = await answer.json()
        if body["status"] != "success":
            raise Refused(f"{body['error']} in {parameters['query']}")
        return list(body["data"]["result"])

    @contextmanager
    def running(self) -> Iterator[Prometheus]:
        """Run inside the block."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "targets.json").write_text("[]")
        config = self._folder / "prometheus.yaml"
        config.write_text(yaml.safe_dump(self._configuration()))
        with (self._folder / "prometheus.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={config}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address={self._url.removeprefix('http://')}",
                ],
                stdout=log,
                stderr=log,
            )
        try:
            yield self
        finally:
            process.terminate()
            process.wait()

    def _configuration(self) -> dict[str, Any]:
        files = {"files": [str(self._folder / "targets.json")], "refresh_interval": "1s"}
        job = {"job_name": "rowlock", "honor_labels": True, "file_sd_configs": [files]}
        every = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        return {"global": every, "scrape_configs": [job]}

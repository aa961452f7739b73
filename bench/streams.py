"""Streams: what it costs to listen to a thousand models at once, and how late their text is.

    python -m bench streams --streams 1000 --rate 70 --json FILE
    python -m bench streams --streams 1000 --rate 70 --tls --client aiohttp

A server in a process of its own streams one token at a time to each client's connection,
or a few tokens in one packet (`--burst`) where the server is to leave the machine to the client.
One process listens with `OpenAIChat`, or with aiohttp as it is commonly used, for comparison.
Its CPU time is read while all streams run; a share of them is watched, and of each piece of text
that comes out there, the oldest token says how late it is.
At the end every text is checked token by token; a load with a wrong one exits with 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import resource
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop
from rich.console import Console
from rich.table import Table

from rowlock import ModelRequest, OpenAIChat
from rowlock.agents.messages import user_message

_RAMP_SECONDS = 3.0
#: How often the loop's own lateness is looked at.
_LAG_SECONDS = 0.01


@dataclass(frozen=True)
class Figures:
    """What one load showed.

    Parameters
    ----------
    cores
        CPU time of the listening process, by the time in which all streams ran.
    cpu_us_per_token
        The same for each token, in microseconds.
    late_ms_p50, late_ms_p99, late_ms_max
        From when a watched token was sent to when its text came out.
    lag_ms_p99
        How late the loop is for a timer.
    tokens_per_second
        What the server really sent, all streams together.
    rss_mb
        Resident memory of the listening process at its peak.
    """

    client: str
    tls: bool
    streams: int
    rate: float
    burst: int
    watched: int
    seconds: float
    cores: float
    cpu_us_per_token: float
    tokens_per_second: float
    late_ms_p50: float
    late_ms_p99: float
    late_ms_max: float
    lag_ms_p99: float
    rss_mb: float
    texts_right: bool


@dataclass
class Seen:
    """What was seen while the streams ran; times in seconds."""

    late: list[float] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    cpu: float = 0.0
    seconds: float = 0.0

    def heard(self, text: str) -> None:
        """Note how late the oldest token of a piece is."""
        self.late.append(time.monotonic() - float(text.split(" ", 2)[1]))


Listen = Callable[[Callable[[str], None] | None], Coroutine[Any, Any, str]]


def with_openai_chat(url: str, tls: ssl.SSLContext | None) -> Listen:
    """Return our own client."""
    model = OpenAIChat("m", base_url=url, api_key="", tls=tls)

    async def listen(heard: Callable[[str], None] | None) -> str:
        request = ModelRequest(
            1, [user_message("go")], b"[]", None, heard or _nobody, lambda: heard is not None
        )
        return (await model.turn(request)).text

    return listen


def with_aiohttp(url: str, tls: ssl.SSLContext | None, session: aiohttp.ClientSession) -> Listen:
    """Return the common way: one line after the other as it comes."""
    decode = msgspec.json.decode
    body = {"messages": [{"role": "user", "content": "go"}], "stream": True}

    async def listen(heard: Callable[[str], None] | None) -> str:
        texts: list[str] = []
        async with session.post(f"{url}/chat/completions", json=body, ssl=tls or True) as response:
            async for line in response.content:
                if not line.startswith(b"data: {"):
                    continue
                for choice in decode(line[6:])["choices"]:
                    if text := choice["delta"].get("content"):
                        texts.append(text)
                        if heard is not None:
                            heard(text)
        return "".join(texts)

    return listen


async def measure(arguments: argparse.Namespace, url: str, tls: ssl.SSLContext | None) -> Figures:
    """Listen to all streams once."""
    seen = Seen()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        listen = (
            with_aiohttp(url, tls, session)
            if arguments.client == "aiohttp"
            else with_openai_chat(url, tls)
        )
        watched = round(arguments.streams * arguments.watched)
        heard = [seen.heard] * watched + [None] * (arguments.streams - watched)
        listening = await begun([listen(one) for one in heard])
        await observe(arguments.seconds, seen)
        running = sum(not one.done() for one in listening)
        texts = await asyncio.gather(*listening)
    right = running == arguments.streams and all(
        text.count(" ") == tokens(arguments) and _rises(text) for text in texts
    )
    return figures(arguments, seen, texts, watched=watched, right=right)


async def begun(listening: list[Coroutine[Any, Any, str]]) -> list[asyncio.Task[str]]:
    """Start all streams, evenly over the ramp, however late this process is for each."""
    loop = asyncio.get_running_loop()
    start, tasks = loop.time(), list[asyncio.Task[str]]()
    while len(tasks) < len(listening):
        due = math.ceil((loop.time() - start) / _RAMP_SECONDS * len(listening))
        tasks += [loop.create_task(one) for one in listening[len(tasks) : due]]
        await asyncio.sleep(_LAG_SECONDS)
    return tasks


async def observe(seconds: float, seen: Seen) -> None:
    """Let the streams run and read the process's CPU time around it."""
    loop = asyncio.get_running_loop()
    seen.late.clear()
    began, cpu = loop.time(), _cpu()
    while loop.time() - began < seconds:
        due = loop.time() + _LAG_SECONDS
        await asyncio.sleep(_LAG_SECONDS)
        seen.lags.append(loop.time() - due)
    seen.seconds, seen.cpu = loop.time() - began, _cpu() - cpu
    seen.late = list(seen.late)


def figures(
    arguments: argparse.Namespace, seen: Seen, texts: list[str], *, watched: int, right: bool
) -> Figures:
    """Turn what was seen into figures."""
    sent = [float(stamp) for text in texts for stamp in text.split(" ")[1:]]
    a_second = len(sent) / arguments.streams / _mean_span(texts) * arguments.streams
    late, lags = sorted(seen.late) or [0.0], sorted(seen.lags)
    return Figures(
        client=arguments.client,
        tls=arguments.tls,
        streams=arguments.streams,
        rate=arguments.rate,
        burst=arguments.burst,
        watched=watched,
        seconds=round(seen.seconds, 2),
        cores=round(seen.cpu / seen.seconds, 3),
        cpu_us_per_token=round(seen.cpu / seen.seconds / a_second * 1e6, 2),
        tokens_per_second=round(a_second),
        late_ms_p50=_ms(late, 0.5),
        late_ms_p99=_ms(late, 0.99),
        late_ms_max=_ms(late, 1.0),
        lag_ms_p99=_ms(lags, 0.99),
        rss_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000, 1),
        texts_right=right,
    )


def tokens(arguments: argparse.Namespace) -> int:
    """Return how long each stream must be to run all the time."""
    return int(arguments.rate * (arguments.seconds + 2 * _RAMP_SECONDS))


@contextmanager
def server(arguments: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Run the server for the length of the block and yield its URL."""
    command = [sys.executable, "-m", "bench._stream_server", f"--rate={arguments.rate}"]
    command += [f"--tokens={tokens(arguments)}", f"--burst={arguments.burst}"]
    if arguments.tls:
        command.append(f"--tls={folder}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            yield f"{'https' if arguments.tls else 'http'}://localhost:{port}/v1"
        finally:
            process.kill()


def _certificate(folder: Path) -> ssl.SSLContext:
    """Make a certificate for localhost and return what trusts it."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1"
    command += " -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    return ssl.create_default_context(cafile=str(folder / "cert.pem"))


def _nobody(_text: str) -> None:
    pass


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _rises(text: str) -> bool:
    stamps = [float(stamp) for stamp in text.split(" ")[1:]]
    return stamps == sorted(stamps)


def _mean_span(texts: list[str]) -> float:
    ends = [(float(text.split(" ", 2)[1]), float(text.rsplit(" ", 1)[1])) for text in texts]
    return sum(last - first for first, last in ends) / len(ends)


def _ms(values: list[float], share: float) -> float:
    return round(values[min(int(len(values) * share), len(values) - 1)] * 1000, 1)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench streams",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=70.0, help="tokens a second and stream")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to measure")
    parser.add_argument("--watched", type=float, default=0.1, help="share of watched streams")
    parser.add_argument("--burst", type=int, default=1, help="tokens that the server sends at once")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--client", choices=("rowlock", "aiohttp"), default="rowlock")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    return parser.parse_args()


def table(shown: dict[str, Any]) -> Table:
    """Lay the figures out for people."""
    result = Table("figure", "value", title="Streams of models")
    for name, value in shown.items():
        result.add_row(name, str(value))
    return result


def main() -> None:
    """Measure, print, and say by the exit code whether the texts were right."""
    arguments = parse()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tls = _certificate(folder) if arguments.tls else None
        with server(arguments, folder) as url:
            shown = asdict(uvloop.run(measure(arguments, url, tls)))
    Console().print(table(shown))
    if arguments.json:
        arguments.json.write_text(json.dumps(shown, indent=2) + "\n")
    sys.exit(0 if shown["texts_right"] else 1)


if __name__ == "__main__":
    main()

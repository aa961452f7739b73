"""The API client: typed errors, pages, tokens, rates; against a small server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from rowlock_operator.kube.client import KubeClient, Lane
from rowlock_operator.kube.credentials import Access
from rowlock_operator.kube.errors import (
    Conflict,
    Denied,
    Expired,
    Invalid,
    NotFound,
    Rejected,
    Throttled,
    Unreachable,
    from_status,
)
from rowlock_operator.kube.tokens import FixedToken

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers as a test wants, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.answer: Answer = self._ok
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path_qs, dict(request.headers)))
        return await self.answer(request)

    async def _ok(self, _: web.Request) -> web.Response:
        return web.json_response({"ok": True})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    answering = Server()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answering.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    answering.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield answering
    await runner.cleanup()


class Rotating:
    """A token that was replaced while we held the old one."""

    def __init__(self) -> None:
        self.value = "old"

    async def token(self, *, fresh: bool = False) -> str:
        if fresh:
            self.value = "new"
        return self.value


def client(server: Server, tokens: Any = None, **options: Any) -> KubeClient:
    access = Access(server.url, None, tokens or FixedToken("t"))
    return KubeClient(access, **options)


def status(code: int, message: str = "no", **more: Any) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        headers = more.pop("headers", None)
        return web.json_response({"message": message, **more}, status=code, headers=headers)

    return answer


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, Rejected),
        (401, Denied),
        (403, Denied),
        (404, NotFound),
        (409, Conflict),
        (410, Expired),
        (413, Rejected),
        (422, Invalid),
        (429, Throttled),
        (500, Unreachable),
        (503, Unreachable),
    ],
)
async def test_each_status_code_is_an_error_of_its_own(
    server: Server, code: int, kind: type[Exception]
) -> None:
    server.answer = status(code, f"code {code}")
    async with client(server) as kube:
        with pytest.raises(kind, match=f"code {code}") as caught:
            await kube.get("/x")
    assert type(caught.value) is kind


def test_the_causes_of_an_invalid_object_are_kept() -> None:
    error = from_status(
        422,
        {"message": "bad", "details": {"causes": [{"field": "status.phase", "message": "odd"}]}},
    )
    assert isinstance(error, Invalid)
    assert [str(cause) for cause in error.causes] == ["status.phase: odd"]
    assert not from_status(422, {"message": "a test failed"}).causes  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("header", "seconds"), [("3", 3), (None, 1), ("soon", 1), ("9999", 60), ("0", 0.1)]
)
def test_retry_after_is_kept_within_reason(header: str | None, seconds: float) -> None:
    error = from_status(429, None, retry_after=header)
    assert isinstance(error, Throttled)
    assert error.retry_after == seconds


async def test_a_refused_token_is_read_again_once(server: Server) -> None:
    async def only_new(request: web.Request) -> web.Response:
        known = request.headers["Authorization"] == "Bearer new"
        return web.json_response({"ok": True}, status=200 if known else 401)

    server.answer = only_new
    async with client(server, Rotating()) as kube:
        assert await kube.get("/x") == {"ok": True}
    assert [headers["Authorization"] for _, _, headers in server.asked] == [
        "Bearer old",
        "Bearer new",
    ]


async def test_a_token_that_stays_refused_is_not_tried_for_ever(server: Server) -> None:
    server.answer = status(401)
    async with client(server, FixedToken("t")) as kube:
        with pytest.raises(Denied):
            await kube.get("/x")
    assert len(server.asked) == 1


async def test_pages_follow_the_continue_token(server: Server) -> None:
    async def page(request: web.Request) -> web.Response:
        first = "continue" not in request.query
        meta = {"continue": "next"} if first else {}
        return web.json_response({"metadata": meta, "items": [1] if first else [2]})

    server.answer = page
    async with client(server) as kube:
        items = [page["items"] async for page in kube.pages("/x", params={"a": "b"}, limit=7)]
    assert items == [[1], [2]]
    assert [asked[1] for asked in server.asked] == [
        "/x?a=b&limit=7",
        "/x?a=b&limit=7&continue=next",
    ]


async def test_throttling_lowers_the_rate_of_its_lane_alone(server: Server) -> None:
    async with client(server) as kube:
        before = kube.rate(Lane.READ), kube.rate(Lane.STATUS)
        server.answer = status(429, headers={"Retry-After": "0.1"})
        with pytest.raises(Throttled):
            await kube.json_patch("/x", [], manager="m")
        assert kube.rate(Lane.STATUS) == before[1] / 2
        assert kube.rate(Lane.READ) == before[0]


async def test_an_absent_server_is_unreachable_and_its_return_is_noticed(server: Server) -> None:
    seen: list[int] = []
    async with client(server, observe=lambda _lane, code: seen.append(code)) as kube:

        async def cut(request: web.Request) -> web.Response:
            assert request.transport is not None
            request.transport.close()
            return web.Response()

        server.answer = cut
        with pytest.raises(Unreachable):
            await kube.get("/x")
        assert not kube.recovered.is_set()
        server.answer = status(404)
        with pytest.raises(NotFound):
            await kube.get("/x")
        assert kube.recovered.is_set()
    assert seen == [0, 404]


async def test_a_slow_server_is_unreachable(server: Server) -> None:
    never = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    server.answer = hang
    async with client(server, timeout=0.05) as kube:
        with pytest.raises(Unreachable):
            await kube.get("/x")
    never.set()


async def test_an_answer_that_is_no_json_is_unreachable(server: Server) -> None:
    async def html(_: web.Request) -> web.Response:
        return web.Response(text="<html>")

    server.answer = html
    async with client(server) as kube:
        with pytest.raises(Unreachable, match="not JSON"):
            await kube.get("/x")


async def test_apply_and_patch_name_their_manager_and_type(server: Server) -> None:
    async with client(server) as kube:
        await kube.apply("/d", {"kind": "D"}, manager="me")
        await kube.json_patch("/s", [], manager="me")
    (_, apply, one), (_, patch, two) = server.asked
    assert apply == "/d?fieldManager=me&force=true"
    assert one["Content-Type"] == "application/apply-patch+yaml"
    assert patch == "/s?fieldManager=me"
    assert two["Content-Type"] == "application/json-patch+json"

"""A kubelet that serves the logs of Pods and nothing else, so that `kubectl logs` has an answer.

The local cluster has no nodes. The API server asks the kubelet of a Pod's node for its log, as in
a real cluster; this one reads the file that the worker of the test writes.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rowlock_operator.kube.resources import PODS, Resource
from tests.operators import Stage, eventually

_NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)


class Kubelet:
    """One node with its server; nothing is ever scheduled to it."""

    def __init__(self, folder: Path, name: str) -> None:
        #: Files by the name of the Pod.
        self.logs: dict[str, Path] = {}
        self.name = name
        self._stopping = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(_certificate(folder))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    async def join(self, stage: Stage) -> None:
        """Become a node of the cluster."""
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._server.server_port}},
        }
        await stage.create(_NODES, self.name, spec={"unschedulable": True})
        stage.cluster.kubectl(
            "patch", "node", self.name, "--subresource=status", "--type=merge",
            "-p", json.dumps({"status": status}),
        )  # fmt: skip

    async def runs(self, stage: Stage, pod: str, log: Path) -> None:
        """Take in a Pod whose container writes `log`."""
        self.logs[pod] = log
        spec = {
            "nodeName": self.name,
            "automountServiceAccountToken": False,
            "containers": [{"name": "worker", "image": "example.test/agents:1"}],
        }

        async def accounts() -> str:
            return stage.kubectl("get", "serviceaccounts", "-o", "name")

        await eventually(accounts, "the namespace's account, which every Pod needs")
        await stage.create(PODS, pod, spec=spec)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        kubelet = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = urlsplit(self.path)
                _, kind, _, pod, _ = asked.path.split("/")
                if kind != "containerLogs" or pod not in kubelet.logs:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.end_headers()
                with contextlib.suppress(ConnectionError, ssl.SSLError):  # nobody reads any more
                    kubelet.write(self, pod, follow="follow" in parse_qs(asked.query))

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Say nothing."""

        return Handler

    def write(self, to: BaseHTTPRequestHandler, pod: str, *, follow: bool) -> None:
        """Send a log, and what is written to it later."""
        with self.logs[pod].open("rb") as file:
            while not self._stopping.is_set():
                piece = file.read()
                if piece:
                    to.wfile.write(piece)
                    to.wfile.flush()
                elif not follow:
                    return
                else:
                    time.sleep(0.02)  # a file cannot be waited for


def _certificate(folder: Path) -> Path:
    """Return a file with a key and a certificate that it signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubelet")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    file = folder / "kubelet.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return file

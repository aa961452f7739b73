"""The API server's address and our proof of identity, from a kubeconfig or the Pod we run in."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from rowlock_operator.kube.errors import CredentialsError
from rowlock_operator.kube.tokens import FileToken, FixedToken, TokenSource

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach one API server.

    Parameters
    ----------
    server
        Base URL without a slash at the end.
    tls
        Context with the server's CA and our client certificate; None for plain HTTP.
    tokens
        Where the bearer token comes from.
    namespace
        The namespace of the context or Pod.
    """

    server: str
    tls: ssl.SSLContext | None = field(repr=False)
    tokens: TokenSource = field(repr=False)
    namespace: str = "default"


def in_cluster(folder: Path = SERVICE_ACCOUNT) -> Access:
    """Return the access of the Pod's service account.

    Raises
    ------
    CredentialsError
        This is no Pod, or its service account is not mounted.
    """
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST"),
        os.environ.get("KUBERNETES_SERVICE_PORT", "443"),
    )
    if not host or not (folder / "token").exists():
        raise CredentialsError(
            "no Kubernetes credentials: set KUBECONFIG or --kubeconfig, or run in a Pod"
            " with a service account"
        )
    namespace = folder / "namespace"
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        tls=tls_context(ca=(folder / "ca.crt").read_text()),
        tokens=FileToken(folder / "token"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def tls_context(
    *,
    ca: str | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    insecure: bool = False,
) -> ssl.SSLContext:
    """Return a client context.

    Parameters
    ----------
    ca
        PEM text of the authorities to trust; None for the system's.
    certificate, key
        Files with our client certificate and its key.
    insecure
        Trust any server; only because kubeconfig files can ask for it.

    Raises
    ------
    CredentialsError
        A certificate or key cannot be read.
    """
    try:
        context = ssl.create_default_context(cadata=ca)
        if certificate:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise CredentialsError(f"the TLS credentials cannot be used: {error}") from error
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def no_token() -> FixedToken:
    """Return a source without a token: a client certificate says who we are."""
    return FixedToken()

"""Kubeconfig files, the Pod's service account and tokens."""

from __future__ import annotations

import base64
import json
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rowlock_operator.kube import access, kubeconfig
from rowlock_operator.kube.credentials import in_cluster
from rowlock_operator.kube.errors import CredentialsError
from rowlock_operator.kube.tokens import FileToken, PluginToken

SECRET = "a-very-secret-token"


@pytest.fixture(scope="module")
def identity() -> tuple[bytes, bytes]:
    """A certificate that is its own authority, and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def config(cluster: dict[str, Any], user: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a kubeconfig with one context, named `main`."""
    return {
        "clusters": [{"name": "c", "cluster": {"server": "https://k8s.test:6443/", **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", **more}}],
        "current-context": "main",
    }


def written(folder: Path, content: Any, name: str = "config") -> Path:
    """Write a kubeconfig and return its path."""
    path = folder / name
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


async def test_a_token_and_a_namespace_are_read(tmp_path: Path) -> None:
    found = kubeconfig.load([written(tmp_path, config({}, {"token": SECRET}, namespace="team"))])
    assert (found.server, found.namespace) == ("https://k8s.test:6443", "team")
    assert await found.tokens.token() == SECRET
    assert SECRET not in repr(found)


async def test_a_token_file_is_relative_to_its_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    found = kubeconfig.load([written(tmp_path, config({}, {"tokenFile": "token"}))])
    assert await found.tokens.token() == SECRET


@pytest.mark.parametrize("inline", [True, False])
def test_certificates_are_read_from_data_and_files(
    tmp_path: Path, identity: tuple[bytes, bytes], inline: bool
) -> None:
    certificate, key = identity
    named = {
        "certificate-authority": certificate,
        "client-certificate": certificate,
        "client-key": key,
    }
    fields: dict[str, str] = {}
    for name, pem in named.items():
        if inline:
            fields[f"{name}-data"] = base64.b64encode(pem).decode()
        else:
            (tmp_path / name).write_bytes(pem)
            fields[name] = name
    cluster = {key: fields[key] for key in fields if key.startswith("certificate")}
    user = {key: fields[key] for key in fields if key.startswith("client")}
    found = kubeconfig.load([written(tmp_path, config(cluster, user))])
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    assert len(found.tls.get_ca_certs()) == 1


def test_insecure_is_obeyed(tmp_path: Path) -> None:
    given = config({"insecure-skip-tls-verify": True}, {})
    found = kubeconfig.load([written(tmp_path, given)])
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_NONE


def test_the_first_file_wins_and_contexts_are_merged(tmp_path: Path) -> None:
    first = written(tmp_path, config({}, {"token": "1"}, namespace="first"), "first")
    other = config({}, {"token": "2"}, namespace="second")
    other["contexts"].append({"name": "extra", "context": {"cluster": "c", "namespace": "extra"}})
    second = written(tmp_path, other, "second")
    assert kubeconfig.load([first, second]).namespace == "first"
    assert kubeconfig.load([first, second], context="extra").namespace == "extra"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: [", "not valid YAML"),
        ("just text", "no kubeconfig"),
        ({"clusters": []}, "names no current context"),
        ({"current-context": "gone"}, "no context named 'gone'"),
        (config({"server": "k8s.test"}, {}), "the server's URL"),
        (config({"certificate-authority": "missing.pem"}, {}), "missing.pem, which does not exist"),
        (config({"certificate-authority-data": "%%%"}, {}), "not base64"),
        (config({"certificate-authority-data": "aGVsbG8="}, {}), "TLS credentials"),
        (config({}, {"exec": {"args": ["x"]}}), "has no command"),
    ],
)
def test_a_broken_kubeconfig_is_one_clear_error(tmp_path: Path, content: Any, words: str) -> None:
    with pytest.raises(CredentialsError) as caught:
        kubeconfig.load([written(tmp_path, content)])
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_missing_kubeconfig_names_its_path(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="nowhere"):
        kubeconfig.load([tmp_path / "nowhere"])


async def test_the_pod_uses_its_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identity: tuple[bytes, bytes]
) -> None:
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "namespace").write_text("rowlock")
    (tmp_path / "ca.crt").write_bytes(identity[0])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    found = in_cluster(tmp_path)
    assert (found.server, found.namespace) == ("https://[fd00::1]:443", "rowlock")
    assert await found.tokens.token() == SECRET


def test_kubeconfig_wins_over_the_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBECONFIG", str(written(tmp_path, config({}, {"token": SECRET}))))
    assert access.find_access().server == "https://k8s.test:6443"


def test_nothing_at_all_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(CredentialsError, match="no Kubernetes credentials"):
        access.find_access()


async def test_a_token_file_is_read_again_when_the_server_refuses(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    source = FileToken(path)
    assert await source.token() == "old"
    path.write_text("new")
    assert await source.token() == "old"
    assert await source.token(fresh=True) == "new"
    path.write_text("")
    with pytest.raises(CredentialsError, match="is empty"):
        await source.token(fresh=True)


def plugin(folder: Path, body: str) -> Path:
    """Write a credential plugin and return its path."""
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


async def test_a_plugin_is_asked_once_until_its_token_ends(tmp_path: Path) -> None:
    answer = {
        "kind": "ExecCredential",
        "status": {"token": SECRET, "expirationTimestamp": "2999-01-01T00:00:00Z"},
    }
    path = plugin(tmp_path, f"echo x >>{tmp_path}/calls; echo '{json.dumps(answer)}'")
    source = PluginToken([str(path)], {"EXTRA": "1"}, "client.authentication.k8s.io/v1")
    assert [await source.token() for _ in range(3)] == [SECRET] * 3
    assert await source.token(fresh=True) == SECRET
    assert (tmp_path / "calls").read_text().count("x") == 2


async def test_a_token_that_ends_soon_is_replaced(tmp_path: Path) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=20)).isoformat()
    answer = json.dumps({"status": {"token": SECRET, "expirationTimestamp": soon}})
    path = plugin(tmp_path, f"echo x >>{tmp_path}/calls; echo '{answer}'")
    source = PluginToken([str(path)], {}, "client.authentication.k8s.io/v1")
    assert [await source.token() for _ in range(2)] == [SECRET] * 2
    assert (tmp_path / "calls").read_text().count("x") == 2


@pytest.mark.parametrize(
    ("body", "words"),
    [("exit 3", "ended with 3"), ("echo hello", "gave no token"), ("echo '{}'", "gave no token")],
)
async def test_a_failing_plugin_is_one_clear_error(tmp_path: Path, body: str, words: str) -> None:
    source = PluginToken([str(plugin(tmp_path, body))], {}, "v1")
    with pytest.raises(CredentialsError, match=words):
        await source.token()


async def test_a_missing_plugin_is_one_clear_error() -> None:
    with pytest.raises(CredentialsError, match="credential plugin /no/such"):
        await PluginToken(["/no/such"], {}, "v1").token()

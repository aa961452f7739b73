"""Certificates and keys of one cluster: made in memory, valid for a year, trusted by it alone.

One authority signs one certificate, which serves every component and is also the API server's
client certificate towards etcd.
That is too little for production and enough to keep other users of the machine out of etcd.
Elliptic keys are used throughout because they take no noticeable time to make.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .addresses import HOST
from .layout import Layout, write_private

SERVICE_CIDR = "10.202.0.0/24"
"""Addresses of Services; the first one is the API server's own inside the cluster."""

_DNS_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


@dataclass(frozen=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def write_pki(layout: Layout) -> None:
    """Write ca.crt, server.crt, server.key and service-account.key into the cluster's folder."""
    authority = _make_authority()
    server_key = _new_key()
    server = _sign_server(authority, server_key)
    write_private(layout.ca, _pem(authority.certificate))
    write_private(layout.pki / "server.crt", _pem(server))
    write_private(layout.pki / "server.key", _key_pem(server_key))
    write_private(layout.pki / "service-account.key", _key_pem(_new_key()))


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=365))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _make_authority() -> _Authority:
    key = _new_key()
    name = _name("rowlock local cluster")
    builder = _builder(name, name, key)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return _Authority(builder.sign(key, hashes.SHA256()), key)


def _sign_server(authority: _Authority, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    builder = _builder(_name("kube-apiserver"), authority.certificate.subject, key)
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    # Python 3.13 and later refuse a certificate that does not name its authority's key.
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    return (
        builder.add_extension(x509.SubjectAlternativeName(_alternative_names()), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(signer, critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def _alternative_names() -> list[x509.GeneralName]:
    service = next(ipaddress.IPv4Network(SERVICE_CIDR).hosts())
    addresses = (*map(ipaddress.IPv4Address, ("127.0.0.1", HOST)), service)
    names = [x509.DNSName(name) for name in _DNS_NAMES]
    return [*names, *(x509.IPAddress(address) for address in addresses)]


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        # The older form: Kubernetes reads a service account's elliptic key in no other.
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )

"""Who may speak to the API server: one random token a user, and a kubeconfig around each."""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass

from .addresses import MOST_NODES
from .layout import Layout, write_private


@dataclass(frozen=True)
class User:
    """A user of the token file, as the API server's authorizers know it."""

    name: str
    groups: tuple[str, ...] = ()


USERS = {
    "admin": User("admin", ("system:masters",)),
    "controller-manager": User("system:kube-controller-manager"),
    "scheduler": User("system:kube-scheduler"),
}

USERS_OF_NODES = {
    "kube-proxy": User("system:kube-proxy"),
    "coredns": User("localcluster:coredns"),
} | {
    f"node-{number}": User(f"system:node:node-{number}", ("system:nodes",))
    for number in range(1, MOST_NODES + 1)
}


def write_credentials(layout: Layout, *, name: str, url: str, nodes: bool = False) -> str:
    """Write the token file and the kubeconfigs, each with mode 0600.

    Args:
        layout: The cluster's folder; its authority must be there already.
        name: Name of the cluster; the context is called ``rowlock-NAME``.
        url: Address of the API server.
        nodes: Whether nodes will join.

    Returns:
        The admin's token.
    """
    users = USERS | (USERS_OF_NODES if nodes else {})
    tokens = {key: secrets.token_urlsafe(32) for key in users}
    rows = [_row(tokens[key], user) for key, user in users.items()]
    write_private(layout.tokens, "".join(rows).encode())
    authority = base64.b64encode(layout.ca.read_bytes()).decode()
    for key, token in tokens.items():
        config = _kubeconfig(f"rowlock-{name}", url=url, authority=authority, token=token)
        write_private(layout.kubeconfig(key), config)
    return tokens["admin"]


def _row(token: str, user: User) -> str:
    groups = f',"{",".join(user.groups)}"' if user.groups else ""
    return f"{token},{user.name},{user.name}{groups}\n"


def _kubeconfig(context: str, *, url: str, authority: str, token: str) -> bytes:
    # JSON is YAML, and this way no value needs quoting rules of our own.
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": context, "cluster": {"server": url, "certificate-authority-data": authority}}
        ],
        "users": [{"name": context, "user": {"token": token}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "current-context": context,
    }
    return json.dumps(config, indent=2).encode()

"""Addresses of a cluster that has nodes; one without them is on the loopback interface alone."""

from __future__ import annotations

HOST = "10.201.0.1"
"""The host, as nodes and pods see it: the API server and the name server listen there."""

PODS_AND_NODES = "10.201.0.0/16"

MOST_NODES = 3
"""Nodes that one cluster can have: their credentials are made before it starts."""


def address_of(number: int) -> str:
    """Return the address of node `number`, counted from 1."""
    return f"10.201.0.{10 + number}"


def pods_of(number: int) -> str:
    """Return the range from which the pods of node `number` get addresses."""
    return f"10.201.{number}.0/24"

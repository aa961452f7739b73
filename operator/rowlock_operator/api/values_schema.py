"""What a chart's values may say of an object's spec: the schema of its kind, closed.

The API server drops a field that it does not know, with no more than a warning; Helm refuses it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from .agent import Agent
from .crd import crd
from .resource import Resource
from .workerpool import WorkerPool

#: Definitions of values.schema.json, and the fields that the chart itself gives.
_DEFINED: Final[Mapping[str, tuple[type[Resource], frozenset[str]]]] = {
    "workerPool": (WorkerPool, frozenset({"image"})),
    "agent": (Agent, frozenset()),
}
_OPEN: Final = "x-kubernetes-preserve-unknown-fields"
#: What is for the API server, or would be repeated there.
_LEFT_OUT: Final = frozenset({"default", "description", "format"})


def with_specs(text: str) -> str:
    """Return a values.schema.json with the specs of our kinds as the models have them."""
    schema = json.loads(text)
    for name, (kind, given) in _DEFINED.items():
        schema["$defs"][name] = _spec(kind, given)
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _spec(kind: type[Resource], given: frozenset[str]) -> dict[str, Any]:
    [version] = crd(kind)["spec"]["versions"]
    spec = closed(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    spec["required"] = [name for name in spec.get("required", ()) if name not in given]
    return spec


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a structural schema as JSON Schema that refuses fields which it does not name."""
    kept = {name: value for name, value in schema.items() if _is_kept(name)}
    if "items" in schema:
        kept["items"] = closed(schema["items"])
    if isinstance(schema.get("additionalProperties"), Mapping):
        kept["additionalProperties"] = closed(schema["additionalProperties"])
    if "properties" in schema:
        kept["properties"] = {name: closed(part) for name, part in schema["properties"].items()}
        if not schema.get(_OPEN):
            kept["additionalProperties"] = False
    return kept


def _is_kept(name: str) -> bool:
    return name not in _LEFT_OUT and not name.startswith("x-")

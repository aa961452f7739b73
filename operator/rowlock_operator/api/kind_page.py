"""The reference page of a kind, from the same schema that the API server gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .crd import crd
from .markdown import anchor, code, page, section, table
from .names import API_VERSION, CATEGORY
from .resource import Definition, Resource

Schema = Mapping[str, Any]

_RULES = "x-kubernetes-validations"
_INTEGERS = {"int32": "integer", "int64": "integer (64 bit)"}


def kind_page(kind: type[Resource]) -> str:
    """Return the text of a kind's page."""
    definition = kind.definition
    schema = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    objects = [_object(path, node) for path, node in _objects(schema)]
    return page(
        definition.kind,
        schema["description"],
        _names(definition),
        *objects,
        _rules(schema),
        _columns(definition),
        _selectable(definition),
        _scale(definition),
    )


def _names(definition: Definition) -> str:
    names = [definition.plural, *definition.short_names]
    commands = " or ".join(code(f"kubectl get {name}") for name in names)
    return (
        f"API version {code(API_VERSION)}, namespaced; {commands}, and together with the other "
        f"kinds {code(f'kubectl get {CATEGORY}')}."
    )


def _objects(node: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield every object that has fields of its own, with its path."""
    for name, field in node.get("properties", {}).items():
        where = f"{path}.{name}" if path else name
        inner = field.get("items", field)
        if inner.get("properties"):
            yield where, inner
            yield from _objects(inner, where)


def _object(path: str, node: Schema) -> str:
    required = node.get("required", ())
    rows = [
        _field(path, name, field, required=name in required)
        for name, field in node["properties"].items()
    ]
    return section(
        path,
        node["description"],
        table(("Field", "Type", "Default", "Bounds", "Meaning"), rows),
        level=2 if "." not in path else 3,
    )


def _field(path: str, name: str, field: Schema, *, required: bool) -> tuple[str, ...]:
    default = "required" if required else _default(field)
    kind = _type(field, f"{path}.{name}")
    return code(name), kind, default, _bounds(field), field["description"]


def _default(field: Schema) -> str:
    if "default" not in field:
        return ""
    # An object's default is what its fields say.
    return "" if isinstance(field["default"], dict) else code(str(field["default"]))


def _type(field: Schema, path: str) -> str:
    if field["type"] == "array":
        return f"list of [objects]({anchor(path)})"
    if field["type"] == "object":
        return f"[object]({anchor(path)})" if field.get("properties") else "any object"
    if field["type"] == "integer":
        return _INTEGERS[field["format"]]
    return "time" if field.get("format") == "date-time" else str(field["type"])


def _bounds(field: Schema) -> str:
    bounds = [
        ", ".join(code(value) for value in field.get("enum", ())),
        _range(field.get("minimum"), field.get("maximum")),
        _range(field.get("minLength"), field.get("maxLength"), " characters"),
        _range(field.get("minItems"), field.get("maxItems"), " entries"),
        f"unique {code(field['x-kubernetes-list-map-keys'][0])}" if "items" in field else "",
        code(field["pattern"]) if "pattern" in field else "",
    ]
    return "; ".join(bound for bound in bounds if bound)


def _range(low: int | None, high: int | None, unit: str = "") -> str:
    if low is not None and high is not None:
        return f"{low} to {high}{unit}"
    if low is not None:
        return f"at least {low}{unit}"
    return f"at most {high}{unit}" if high is not None else ""


def _rules(schema: Schema) -> str:
    places = [("metadata", schema), *_objects(schema)]
    rows = [
        (code(place), rule["message"], code(rule["rule"]))
        for place, node in places
        for rule in node.get(_RULES, ())
    ]
    intro = "The API server refuses what breaks one of these, with its message."
    return section("Rules", intro, table(("Where", "Message", "Rule"), rows))


def _columns(definition: Definition) -> str:
    rows = [
        (column.name, code(column.path), code("-o wide") if column.wide else "")
        for column in definition.columns
    ]
    return section("Columns", table(("Column", "Shows", "Only with"), rows))


def _selectable(definition: Definition) -> str:
    if not definition.selectable:
        return ""
    fields = ", ".join(code(path.removeprefix(".")) for path in definition.selectable)
    return section("Field selectors", f"{code('--field-selector')} knows {fields}.")


def _scale(definition: Definition) -> str:
    scale = definition.scale
    if scale is None:
        return ""
    return section(
        "Scale",
        f"{code('/scale')} reads and writes {code(scale.spec_replicas)}, "
        f"and shows {code(scale.status_replicas)} and {code(scale.selector)}.",
    )

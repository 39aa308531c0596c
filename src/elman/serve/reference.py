"""The page at `/docs`: what can be asked, made of the same schema that programs read. No script, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any


def reference_page(schema: dict[str, Any]) -> str:
    """Every operation with the fields of its body, as HTML."""
    body = "".join(
        part for path, operations in schema["paths"].items() for part in _operations(path, operations, schema)
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        "<title>elman: HTTP</title><link rel=stylesheet href=/studio/studio.css>"
        f"<main><h1>elman {escape(schema['info']['version'])}</h1>"
        f"<p>For programs: <a href=/openapi.json>openapi.json</a></p>{body}</main></html>"
    )


def _operations(path: str, operations: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    for method, operation in operations.items():
        yield f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation.get('description', ''))}</p>"
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is not None:
            record = _resolve(content["schema"], schema)
            rows = "".join(_row(name, field) for name, field in record.get("properties", {}).items())
            yield f"<table><tr><th>field</th><th>default</th><th>what it is</th></tr>{rows}</table>"


def _row(name: str, field: dict[str, Any]) -> str:
    default = escape(str(field["default"])) if "default" in field else ""
    return f"<tr><td><code>{escape(name)}</code></td><td>{default}</td><td>{escape(_kind(field))}</td></tr>"


def _kind(field: dict[str, Any]) -> str:
    """The values that a field takes, in words."""
    if "anyOf" in field:
        kinds = " or ".join(dict.fromkeys(_kind(one) for one in field["anyOf"] if one.get("type") != "null"))
    elif field.get("type") == "array":
        kinds = f"list of {_kind(field.get('items', {}))}"
    elif "enum" in field:
        kinds = " or ".join(map(str, field["enum"]))
    else:
        names = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
        bounds = [f"{word} {field[key]}" for key, word in names.items() if key in field]
        kinds = " ".join([field.get("type", "object"), *bounds])
    return f"{kinds}: {field['description']}" if "description" in field else kinds


def _resolve(one: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in one:
        return one
    found: dict[str, Any] = schema["components"]["schemas"][one["$ref"].rpartition("/")[2]]
    return found

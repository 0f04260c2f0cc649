"""Events made by chance: valid ones from a JSON schema, and ones that something is wrong with."""

from __future__ import annotations

import copy
import random
from typing import Any

JUNK: list[Any] = [None, 0, -1, 1e400, True, "", "x" * 70, "\u0000", [], {}, [[]], {"type": "message"}, ["audio", 3]]


def mutated(event: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The event with one to three of its fields replaced, removed or added, at any depth."""
    event = copy.deepcopy(event)
    for _ in range(chance.randint(1, 3)):
        place: Any = event
        while True:
            inner = [
                v for v in (place.values() if isinstance(place, dict) else place) if isinstance(v, dict | list) and v
            ]
            if not inner or chance.random() < 0.4:
                break
            place = chance.choice(inner)
        key: Any = chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place))
        if chance.random() < 0.3 and isinstance(place, dict):
            del place[key]
        else:
            place[key] = copy.deepcopy(chance.choice(JUNK))
        if not event:
            break
    return event


WORDS = ["", "a", "item_1", "好的", "one two", "\U0001f375", '{"a": 1}']


def generated(schema: dict[str, Any], chance: random.Random, whole: dict[str, Any] | None = None) -> Any:
    """A value that the schema takes; `whole`: the document in which its references are found."""
    whole = schema if whole is None else whole

    def one(part: dict[str, Any]) -> Any:
        return generated(part, chance, whole)

    if "$ref" in schema:
        return one(whole["$defs"][schema["$ref"].rsplit("/", 1)[1]])
    for union in ("oneOf", "anyOf"):
        if union in schema:
            return one(chance.choice(schema[union]))
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return chance.choice(schema["enum"])
    match schema.get("type"):
        case "object" if "properties" in schema:
            wanted = {*schema.get("required", []), *(key for key in schema["properties"] if chance.random() < 0.5)}
            return {key: one(value) for key, value in schema["properties"].items() if key in wanted}
        case "object":
            return {chance.choice(WORDS): chance.choice(JUNK[:3]) for _ in range(chance.randrange(3))}
        case "array":
            return [one(schema["items"]) for _ in range(chance.randrange(4))]
        case "string":
            return chance.choice([word for word in WORDS if len(word) >= schema.get("minLength", 0)])
        case "integer":
            return chance.randint(schema.get("minimum", 0), schema.get("maximum", 10**6))
        case "number":
            return round(chance.uniform(schema.get("minimum", 0), schema.get("maximum", 1e4)), 3)
        case "boolean":
            return chance.random() < 0.5
        case "null":
            return None
        case None:
            return chance.choice([None, 1, "x", [1], {"ok": True}])
    raise ValueError(f"expected a JSON schema of a kind used by the events, got {schema}")

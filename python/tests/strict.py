"""Holds a document against its JSON Schema in `schemas/`, by the part of the standard that those files use.

The schemas are generated from crates/oomph-protocol, where readers pass over unknown fields and take defaults for absent
ones. Here both are errors: a field that was renamed on one side would otherwise read as 0.
"""

import json
import os

_SCHEMAS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "schemas")
_KINDS = {
    "null": type(None), "string": str, "boolean": bool, "integer": int, "number": (int, float), "array": list, "object": dict,
}
_KNOWN = {
    "$schema", "$defs", "$ref", "title", "description", "type", "properties", "required", "additionalProperties", "items",
    "prefixItems", "minItems", "maxItems", "enum", "const", "anyOf", "oneOf", "format", "minimum", "maximum", "default",
}
_cache = {}


def problems(document):
    """What is wrong with a document by the schema that it names: a list of sentences, empty where nothing is."""
    name = document.get("schema")
    if not isinstance(name, str):
        return ["the document has no schema"]
    if name not in _cache:
        path = os.path.join(_SCHEMAS, name.replace("/", "-") + ".json")
        if not os.path.exists(path):
            return ["nothing declares %r" % name]
        with open(path) as file:
            _cache[name] = json.load(file)
    root = _cache[name]
    return list(_check(document, root, root, ""))


def _check(value, schema, root, place):
    if schema is True:
        return
    unknown = set(schema) - _KNOWN
    assert not unknown, "this validator does not know %s" % unknown
    if "$ref" in schema:
        yield from _check(value, root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], root, place)
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        tried = [list(_check(value, choice, root, place)) for choice in choices]
        if all(tried):
            # The choice that comes the closest is the one that was meant.
            yield from min(tried, key=lambda found: ("not of type" in found[0], len(found)))
        return
    if "const" in schema and value != schema["const"]:
        yield "`%s` is %r, not %r" % (place, value, schema["const"])
    if "enum" in schema and value not in schema["enum"]:
        yield "`%s` is %r, which is none of %s" % (place, value, schema["enum"])
    kinds = schema.get("type")
    if kinds is not None and not any(_is(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        yield "`%s` is %r, not of type %s" % (place, value, kinds)
        return
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value < schema.get("minimum", value):
        yield "`%s` is %r, below %r" % (place, value, schema["minimum"])
    if isinstance(value, dict):
        yield from _check_object(value, schema, root, place)
    if isinstance(value, list):
        fixed = schema.get("prefixItems", [])
        if len(value) < schema.get("minItems", 0) or len(value) > schema.get("maxItems", len(value)):
            yield "`%s` has %d elements" % (place, len(value))
        for index, element in enumerate(value):
            of = fixed[index] if index < len(fixed) else schema.get("items", True)
            yield from _check(element, of, root, "%s[%d]" % (place, index))


def _check_object(value, schema, root, place):
    fields = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield "missing field `%s`" % _join(place, name)
    for name, of in value.items():
        if name in fields:
            yield from _check(of, fields[name], root, _join(place, name))
        elif schema.get("additionalProperties", True) is False:
            yield "unknown field `%s`" % _join(place, name)
        else:
            yield from _check(of, schema.get("additionalProperties", True), root, _join(place, name))


def _is(value, kind):
    # To Python True is a number.
    return isinstance(value, _KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _join(place, name):
    return "%s.%s" % (place, name) if place else name

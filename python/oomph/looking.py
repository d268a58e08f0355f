"""Looking at objects of the program, whose attributes may be code of their own that raises whatever it likes."""

from collections.abc import Mapping


def attribute(thing, name, default=None):
    """An attribute of an object; `default` where it has none, or where asking for it raises."""
    try:
        return getattr(thing, name, default)
    except Exception:
        return default


def is_mapping(thing):
    """Whether an object has values by names. An object that only has a method `items` may mean something else by it."""
    return isinstance(thing, Mapping)

"""Writes documents of a run as bytes."""

from __future__ import annotations


def as_json(document: object) -> bytes:
    """A document as JSON in UTF-8.

    The name of a file that is not UTF-8 reaches Python with lone surrogates, which readers of JSON refuse. They become
    question marks, so that one such name does not cost the whole document.
    """
    import json

    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")

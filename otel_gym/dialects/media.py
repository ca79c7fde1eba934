"""Images, audio and files as parts of the GenAI message schema: `blob`, `uri` and `file`.

Small data is carried along (`blob`). Larger data is named by the SHA-256 of its bytes (`uri`, in the form of RFC 6920):
a chat repeats its images with every request, and the record holds them whole.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from otel_gym_jsonl import json_text

LONGEST_INLINE_BLOB: Final = 16_384
"""Characters of base64 that a message carries along."""

_DATA_URL: Final = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.IGNORECASE)
_DOCUMENTS: Final = ("application/", "text/")


def linked(source: Any, modality: str, mime_type: Any = None) -> dict[str, Any] | None:
    """The part for a URL, which may be a `data:` one; None for what is no text."""
    if not isinstance(source, str) or not source:
        return None
    found = _DATA_URL.match(source) if source[:5].lower() == "data:" else None
    if found is None:
        return _described("uri", modality, mime_type, uri=source)
    data = source[found.end() :]
    if not found[2].lower().endswith(";base64"):
        data = base64.b64encode(unquote_to_bytes(json_text.mend_surrogates(data))).decode()
    return inline(data, modality, found[1] or mime_type)


def inline(data: Any, modality: str, mime_type: Any = None) -> dict[str, Any] | None:
    """The part for data in base64; None for what is no text."""
    if not isinstance(data, str) or not data:
        return None
    if len(data) <= LONGEST_INLINE_BLOB:
        return _described("blob", modality, mime_type, content=data)
    try:
        raw = base64.b64decode(data)
    except ValueError:  # no base64: its text is what there is to name
        raw = json_text.mend_surrogates(data).encode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")
    return _described("uri", modality, mime_type, uri=f"ni:///sha-256;{digest}", size=len(raw))


def uploaded(file_id: Any, modality: str, mime_type: Any = None) -> dict[str, Any] | None:
    """The part for a file that the provider has; None for what is no id."""
    if not isinstance(file_id, str) or not file_id:
        return None
    return _described("file", modality, mime_type, file_id=file_id)


def _described(kind: str, modality: str, mime_type: Any, **value: Any) -> dict[str, Any]:
    part = {"type": kind, "modality": modality}
    if isinstance(mime_type, str) and mime_type:
        part["mime_type"] = mime_type
        part["modality"] = _modality(mime_type.lower(), modality)
    return part | value


def _modality(mime_type: str, otherwise: str) -> str:
    family = mime_type.partition("/")[0]
    if family in ("image", "audio", "video"):
        return family
    return "document" if mime_type.startswith(_DOCUMENTS) else otherwise

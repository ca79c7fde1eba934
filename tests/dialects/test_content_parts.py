"""Images, sound, files, texts and what is unknown, as parts of the GenAI message schema."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from otel_gym.dialects import DIALECTS
from otel_gym.dialects.media import LONGEST_INLINE_BLOB
from tests.dialects.telling import CHAT, LARGE, LARGE_URI, PNG, asked, reasoning, text


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            {"type": "image_url", "image_url": {"url": "https://x/a.png", "detail": "low"}},
            {"type": "uri", "modality": "image", "uri": "https://x/a.png"},
        ),
        (
            {"type": "image_url", "image_url": f"data:image/png;base64,{PNG}"},
            {"type": "blob", "modality": "image", "mime_type": "image/png", "content": PNG},
        ),
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(LARGE).decode()}"}},
            {"type": "uri", "modality": "image", "mime_type": "image/png", "uri": LARGE_URI, "size": len(LARGE)},
        ),
        (
            {"type": "image_url", "image_url": {"url": "data:,a%20b"}},
            {"type": "blob", "modality": "image", "content": base64.b64encode(b"a b").decode()},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": PNG, "format": "mp3"}},
            {"type": "blob", "modality": "audio", "mime_type": "audio/mpeg", "content": PNG},
        ),
        (
            {"type": "video_url", "video_url": {"url": "https://x/a.mp4"}},
            {"type": "uri", "modality": "video", "uri": "https://x/a.mp4"},
        ),
        (
            {"type": "file", "file": {"file_id": "file-1"}},
            {"type": "file", "modality": "document", "file_id": "file-1"},
        ),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PNG}"}},
            {
                "type": "blob",
                "modality": "document",
                "mime_type": "application/pdf",
                "content": PNG,
                "filename": "a.pdf",
            },
        ),
        ({"type": "refusal", "refusal": "No."}, {"type": "generic", "generic_type": "refusal", "refusal": "No."}),
        ({"type": "hologram", "data": 5}, {"type": "generic", "generic_type": "hologram", "data": 5}),
        ({"type": "text", "text": 5}, {"type": "generic", "generic_type": "text", "text": 5}),
        ({"type": "image_url"}, {"type": "generic", "generic_type": "image_url"}),
        ({"type": ["text"]}, {"type": "generic", "generic_type": "unknown"}),
        ({"text": "no type"}, text("no type")),
        ("a bare text", text("a bare text")),
        (5, {"type": "generic", "generic_type": "unknown", "value": 5}),
        ({"type": "thinking", "thinking": "Hm."}, reasoning("Hm.")),
        # Messages
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": PNG}},
            {"type": "blob", "modality": "image", "mime_type": "image/jpeg", "content": PNG},
        ),
        (
            {"type": "image", "source": {"type": "url", "url": "https://x/a.png"}},
            {"type": "uri", "modality": "image", "uri": "https://x/a.png"},
        ),
        (
            {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
            {"type": "file", "modality": "document", "file_id": "file_1"},
        ),
        ({"type": "document", "source": {"type": "text", "data": "plain", "media_type": "text/plain"}}, text("plain")),
        (
            {"type": "document", "source": {"type": "content", "content": []}},
            {"type": "generic", "generic_type": "document", "source": {"type": "content", "content": []}},
        ),
        # Responses
        ({"type": "input_text", "text": "in"}, text("in")),
        ({"type": "output_text", "text": "out", "annotations": []}, text("out")),
        (
            {"type": "input_image", "file_id": "file-1", "detail": "auto"},
            {"type": "file", "modality": "image", "file_id": "file-1"},
        ),
        (
            {"type": "input_image", "image_url": "gs://bucket/a.png"},
            {"type": "uri", "modality": "image", "uri": "gs://bucket/a.png"},
        ),
        (
            {"type": "input_file", "file_url": "https://x/a.pdf", "filename": "a.pdf"},
            {"type": "uri", "modality": "document", "uri": "https://x/a.pdf", "filename": "a.pdf"},
        ),
    ],
)
def test_a_content_part_of_any_api_becomes_a_part_of_the_schema(part: Any, expected: dict[str, Any]) -> None:
    requests = {
        "chat": {"messages": [{"role": "user", "content": [part]}]},
        "messages": {"messages": [{"role": "user", "content": [part]}]},
        "responses": {"input": [{"role": "user", "content": [part]}]},
    }
    for dialect in DIALECTS.values():
        assert [{"role": "user", "parts": [expected]}] == asked(dialect, requests[dialect.name])


def test_data_is_carried_along_up_to_a_length_and_named_beyond_it() -> None:
    kinds = []
    for data in ("A" * LONGEST_INLINE_BLOB, "A" * LONGEST_INLINE_BLOB + "AAAA", "é" * LONGEST_INLINE_BLOB * 2):
        part = {"type": "input_audio", "input_audio": {"data": data}}
        ((message,),) = (asked(CHAT, {"messages": [{"role": "user", "content": [part]}]}),)
        kinds.append(message["parts"][0]["type"])
    assert ["blob", "uri", "uri"] == kinds

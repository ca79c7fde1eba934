"""Events as the wire has them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

SECONDS_PER_EVENT = 0.005


async def sse(events: Iterator[dict[str, Any]]) -> AsyncIterator[str]:
    """Name each event by its `type`; chat chunks have none, and a chat stream ends with `[DONE]`."""
    named = True
    for event in events:
        await asyncio.sleep(SECONDS_PER_EVENT)
        named = "type" in event
        yield (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n"
    if not named:
        yield "data: [DONE]\n\n"

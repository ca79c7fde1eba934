"""Requests and answers that hold a marker wherever they may hold payload.

Payload is all but model names, ids of responses, sessions and conversations, finish reasons and numbers (the trace
specification, "Content").
"""

from __future__ import annotations

from typing import Any

from otel_gym.testing import DialectName, answer


def tools(marker: str) -> dict[str, list[dict[str, Any]]]:
    """A tool of this name, as each dialect describes it."""
    schema = {"type": "object", "properties": {marker: {"type": "string", "description": marker}}}
    described = {"name": marker, "description": marker, "parameters": schema}
    return {
        "chat": [{"type": "function", "function": described}],
        "responses": [{"type": "function", **described}],
        "messages": [{"name": marker, "description": marker, "input_schema": schema}],
    }


def request(marker: str, dialect: DialectName) -> dict[str, Any]:
    """Payload wherever a request may hold it, with orders for an answer that is marked too."""
    body: dict[str, Any] = {
        "say": marker,
        "user": marker,
        "metadata": {marker: marker, "user_id": marker},
        "tools": tools(marker)[dialect],
        "tool_choice": {"type": "function", "function": {"name": marker}, "name": marker},
        "stop": [marker],
        "stop_sequences": [marker],
        "reasoning_effort": marker,
        "reasoning": {"effort": marker, "summary": marker},
        "thinking": {"type": marker},
        "response_format": {"type": "json_schema", "json_schema": {"name": marker, "schema": {"title": marker}}},
        "service_tier": marker,
        "prompt_cache_key": marker,
        "instructions": marker,
        "system": [{"type": "text", "text": marker}],
        "temperature": marker,
        "max_tokens": marker,
        "seed": marker,
        "n": marker,
        marker: {marker: [marker]},
        "answered": answered(marker, dialect),
        "answered_headers": {**dict.fromkeys(("server", "set-cookie", "x-request-id"), marker), f"x-{marker}": marker},
    }
    call = {"id": marker, "type": "function", "function": {"name": marker, "arguments": marker}}
    image = {"type": "image_url", "image_url": {"url": f"https://{marker}.test/{marker}.png"}}
    conversation: list[dict[str, Any]] = [
        {"role": "system", "content": marker},
        {"role": "user", "content": [{"type": "text", "text": marker}, image], "name": marker},
        {"role": "assistant", "content": None, "refusal": marker, "tool_calls": [call], "reasoning_content": marker},
        {"role": "tool", "tool_call_id": marker, "content": marker},
        {"role": marker, "content": marker},
    ]
    if dialect == "responses":
        items = [{"type": "function_call", "call_id": marker, "name": marker, "arguments": marker}, {"type": marker}]
        return {**body, "input": [{"role": "user", "content": [{"type": "input_text", "text": marker}]}, *items]}
    return {**body, "messages": conversation}


def headers(marker: str, is_valid: bool) -> dict[str, str]:
    """Keys, cookies, and headers of any name; a trace state that is valid or not."""
    named = ("user-agent", "x-api-key", "cookie", "baggage", "referer", "x-request-id", "host", "x-forwarded-for")
    return {
        "authorization": f"Bearer {marker}",
        **dict.fromkeys(named, marker),
        f"x-{marker}": marker,
        "x-forwarded-host": marker,
        "forwarded": f"for={marker};host={marker}",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": f"vendor={marker}" if is_valid else f"{marker} is no trace state",
        "x-stainless-retry-count": marker,
    }


def answered(marker: str, dialect: DialectName) -> dict[str, Any]:
    """What an answer holds beside or instead of the usual: tools, their arguments, reasoning, a refusal, odd keys."""
    usage = {**answer(dialect, "")["usage"], marker: marker, "prompt_tokens_details": {marker: marker}}
    odd = {marker: {marker: [marker]}, "system_fingerprint": marker, "service_tier": marker, "usage": usage}
    if dialect == "chat":
        call = {"id": marker, "type": "function", "function": {"name": marker, "arguments": marker}}
        message = {
            "role": marker,
            "content": marker,
            "refusal": marker,
            "reasoning_content": marker,
            "reasoning": marker,
            "tool_calls": [call],
            "function_call": {"name": marker, "arguments": marker},
            "annotations": [{"type": marker, "url_citation": {"title": marker}}],
            "audio": {"id": marker, "data": marker, "transcript": marker},
        }
        told = {"logprobs": {"content": [{"token": marker}]}, "finish_reason": "tool_calls", "stop_reason": marker}
        return {**odd, "choices": [{"index": 0, "message": message, **told}]}
    if dialect == "messages":
        content = [
            {"type": "thinking", "thinking": marker, "signature": marker},
            {"type": "redacted_thinking", "data": marker},
            {"type": "text", "text": marker, "citations": [{"type": marker, "cited_text": marker}]},
            {"type": "tool_use", "id": marker, "name": marker, "input": {marker: marker}},
            {"type": marker},
        ]
        ended = {"stop_sequence": marker, "stop_details": {"type": marker, "explanation": marker}}
        return {**odd, **ended, "content": content, "role": marker, "type": marker, "container": {"id": marker}}
    parts = [{"type": "output_text", "text": marker, "annotations": [{"type": marker, "url": marker}]}]
    summary = [{"type": "summary_text", "text": marker}]
    output = [
        {"type": "reasoning", "id": marker, "summary": summary, "encrypted_content": marker},
        {"type": "message", "id": marker, "role": "assistant", "content": parts},
        {"type": "message", "id": marker, "role": marker, "content": [{"type": "refusal", "refusal": marker}]},
        {"type": "function_call", "id": marker, "call_id": marker, "name": marker, "arguments": marker},
        {"type": "web_search_call", "id": marker, "status": marker, "action": {"type": "search", "query": marker}},
        {"type": marker},
    ]
    echoed = {"instructions": marker, "metadata": {marker: marker}, "tools": tools(marker)["responses"], "user": marker}
    return {**odd, **echoed, "output": output, "error": {"code": marker, "message": marker}}


def events(marker: str, dialect: DialectName, *, fails: bool) -> list[dict[str, Any]]:
    """The same as the payloads of a stream, which may end in an error."""
    whole = {**answer(dialect, ""), **answered(marker, dialect)}
    error = {"type": marker, "code": marker, "message": marker, "param": marker}
    if dialect == "chat":
        chunk = {"id": "c1", "model": "m", marker: marker, "system_fingerprint": marker}
        delta = {**whole["choices"][0]["message"], marker: marker}
        ended = {"index": 0, "delta": {}, "finish_reason": "tool_calls", "stop_reason": marker}
        told = [{**chunk, "choices": [{"index": 0, "delta": delta}]}, {**chunk, "choices": [ended]}]
        return [*told, {"error": error} if fails else {**chunk, "choices": [], "usage": whole["usage"]}]
    if dialect == "responses":
        begun = {"type": "response.created", "response": {**whole, "status": "in_progress"}}
        items = [
            {"type": f"response.output_item.{step}", "output_index": number, "item": item}
            for number, item in enumerate(whole["output"])
            for step in ("added", "done")
        ]
        end = "response.failed" if fails else "response.completed"
        last = {"type": end, "response": {**whole, "status": end.partition(".")[2]}}
        return [begun, *items, {"type": marker, marker: marker}, last]
    blocks: list[dict[str, Any]] = [
        event
        for number, block in enumerate(whole["content"])
        for event in (
            {"type": "content_block_start", "index": number, "content_block": block},
            {"type": "content_block_delta", "index": number, "delta": {"type": "input_json_delta", marker: marker}},
            {"type": "content_block_delta", "index": number, "delta": {"type": "text_delta", "text": marker}},
            {"type": "content_block_stop", "index": number},
        )
    ]
    start: dict[str, Any] = {"type": "message_start", "message": {**whole, "content": []}}
    ended = {"stop_reason": "end_turn", "stop_sequence": marker, marker: marker}
    last = {"type": "error", "error": error} if fails else {"type": "message_stop"}
    return [start, *blocks, {"type": "message_delta", "delta": ended, "usage": whole["usage"]}, last]

"""Import SGLang as its server does, with its API key, and make one keyless call: run by the Python that has SGLang.

Prints, as JSON, whether the plugin was found, the status of the call under a rollout's prefix, and the provider that
its span would name. Nothing is served: its engine wants a GPU.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

PATH = "/ng-rollout/0-0/v1/chat/completions"


async def keyless(app: Any) -> int:
    told: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        told.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"m")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    await app(scope, receive, send)
    status: int = told[0]["status"]
    return status


def main() -> None:
    """In the order of `sglang.launch_server`: plugins, then the application, then its authentication."""
    from sglang.srt.plugins import load_plugins

    load_plugins()
    from otel_gym import served

    found = served.captures_all()
    from sglang.srt.entrypoints.http_server import app
    from sglang.srt.utils.auth import add_api_key_middleware

    add_api_key_middleware(app, api_key="secret", admin_api_key=None)
    import uvicorn

    from otel_gym.span_facts import server_at_work

    config = uvicorn.Config(app, log_config=None)  # as `uvicorn.run` makes it
    config.load()
    print(json.dumps({"found": found, "status": asyncio.run(keyless(config.loaded_app)), "provider": server_at_work()}))


if __name__ == "__main__":
    main()

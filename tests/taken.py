"""What a real server makes of an application before it serves it."""

from __future__ import annotations

from typing import Any

import uvicorn


def taken(app: Any) -> Any:
    """What uvicorn is going to call, inside of what it puts around the application itself."""
    config = uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_config=None, proxy_headers=False)
    config.load()
    return config.loaded_app

"""Phoenix, a GenAI backend with a page: started in an environment of its own, and asked by GraphQL."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from scripts.build_services import BUILT
from tests.ports import free_ports
from tests.services.jaeger import answers
from tests.services.process import running

PROGRAM = BUILT / "phoenix" / "bin" / "phoenix"
PATIENCE_S = 30.0

_SPAN = """query ($id: String!) { getSpanByOtelId(spanId: $id) {
  name spanKind statusCode attributes tokenCountPrompt tokenCountCompletion tokenCountTotal
  input { value mimeType } output { value mimeType }
  context { traceId spanId } project { name }
} }"""


@dataclass(frozen=True)
class Phoenix:
    """A Phoenix that runs.

    Attributes:
        url: of its page, and for an OTLP exporter over HTTP, without `/v1/traces`.
        otlp_grpc: URL for one over gRPC.
        log: what it says.
        pid: its process.
    """

    url: str
    otlp_grpc: str
    log: Path
    pid: int

    def span(self, span_id: str) -> dict[str, Any] | None:
        """A span as the page shows it, `attributes` as a nested mapping; None when it has none of this id."""
        answer = self.ask(_SPAN, id=span_id)["getSpanByOtelId"]
        return answer and {**answer, "attributes": json.loads(answer["attributes"])}

    def wait_for(self, span_id: str) -> dict[str, Any]:
        """The span, as soon as it is there.

        Raises:
            TimeoutError: it was not after 30 s.
        """
        give_up = time.monotonic() + PATIENCE_S
        while (found := self.span(span_id)) is None:
            if time.monotonic() > give_up:
                raise TimeoutError(f"no span {span_id} within {PATIENCE_S:g} s")
            time.sleep(0.1)
        return found

    def ask(self, query: str, **variables: object) -> dict[str, Any]:
        """The data of a GraphQL answer.

        Raises:
            ValueError: the answer holds errors.
        """
        asked = {"query": query, "variables": variables}
        answer = httpx.post(f"{self.url}/graphql", json=asked, timeout=PATIENCE_S, trust_env=False)
        value = answer.raise_for_status().json()
        if value.get("errors"):
            raise ValueError(f"Phoenix says: {value['errors']}")
        data: dict[str, Any] = value["data"]
        return data


@contextlib.contextmanager
def phoenix_running(directory: Path) -> Iterator[Phoenix]:
    """Run a Phoenix of its own, with nothing in it, until the context ends.

    Args:
        directory: an existing folder for its database and its log.
    """
    http, grpc = free_ports(2)
    variables = {
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(http),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_WORKING_DIR": str(directory),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    }
    log, url = directory / "phoenix.log", f"http://127.0.0.1:{http}"
    with running([PROGRAM, "serve"], log=log, variables=variables, ready=lambda: answers(f"{url}/healthz")) as pid:
        yield Phoenix(url, f"http://127.0.0.1:{grpc}", log, pid)

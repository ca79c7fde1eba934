"""What became of an upstream attempt: into scope state for the record, and as a header between gateways.

    x-otel-gym-upstream: attempted=true, source=local, status=503, reason=context_length_exceeded

An upstream that answers by itself, without asking its model, says so in this header; a gateway does. The record then
has the upstream's word instead of the gateway's own view. Source: the capture contract, `nemo_gym_model_execution`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

from otel_gym.asgi import Scope
from otel_gym.exchange import EXECUTION_OUTCOME

OUTCOME_HEADER: Final = b"x-otel-gym-upstream"

_LONGEST_REASON = 200


class Outcome(NamedTuple):
    """The four keys of the execution outcome.

    Attributes:
        attempted: whether anything was sent to the upstream.
        status: the upstream's, None when it gave none.
        source: whose answer the client gets.
        reason: why it is a local one; or which attempt it is, when there are several.
    """

    attempted: bool
    status: int | None
    source: Literal["upstream", "local"] | None
    reason: str | None = None

    def leave(self, scope: Scope) -> None:
        """Put it where the capture looks for it; a call that is not captured has no use for it."""
        state = scope.get("state")
        if state is not None:
            state[EXECUTION_OUTCOME] = {
                "upstream_attempted": self.attempted,
                "response_source": self.source,
                "upstream_status_code": self.status,
                "local_response_reason": self.reason,
            }

    def header(self) -> bytes:
        """The value of the header; what is unknown is left out."""
        said = [f"attempted={'true' if self.attempted else 'false'}"]
        said += [f"{key}={value}" for key, value in zip(("status", "source", "reason"), self[1:], strict=True) if value]
        return ", ".join(said).encode("latin-1", "replace")

    @classmethod
    def said_by(cls, headers: Iterable[tuple[bytes, bytes]]) -> Outcome | None:
        """What an upstream says of its own attempt; None when it does not, or nothing that can be read."""
        for name, value in headers:
            if name == OUTCOME_HEADER:
                return cls._read(value.decode("latin-1"))
        return None

    @classmethod
    def _read(cls, text: str) -> Outcome | None:
        pairs = (part.partition("=") for part in text.split(","))
        said: dict[str, Any] = {key.strip(): value.strip() for key, _, value in pairs}
        attempted, status, source = said.get("attempted"), said.get("status", ""), said.get("source")
        if attempted not in ("true", "false"):
            return None
        return cls(
            attempted == "true",
            int(status) if len(status) == 3 and status.isascii() and status.isdigit() else None,
            source if source in ("upstream", "local") else None,
            said.get("reason", "")[:_LONGEST_REASON] or None,
        )

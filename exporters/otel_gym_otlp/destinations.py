"""Where spans go: the process's own TracerProvider, what the standard variables say, or a list of the user's."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from otel_gym_otlp import environment, stock
from otel_gym_otlp.copies import LightSpan
from otel_gym_otlp.grpc_sender import GrpcSender
from otel_gym_otlp.http_sender import HttpSender
from otel_gym_otlp.outcome import Outcome, Sender
from otel_gym_otlp.profiles import PROFILES
from otel_gym_otlp.sdk_senders import ExporterSender, ProviderSender, global_provider, set_provider

logger = logging.getLogger(__name__)

PROTOCOLS = ("http/protobuf", "grpc")
_HTTP_PATH = "/v1/traces"


@dataclass(frozen=True)
class Destination:
    """One OTLP backend of the user's.

    Attributes:
        endpoint: base URL (`http://host:4318`; `/v1/traces` is added where it is not there); for gRPC `http://host:port`,
            `https` for TLS.
        protocol: `http/protobuf` or `grpc`.
        headers: sent with each request; those of the standard variables are not.
        profile: `default`, `phoenix` or `langfuse`.
        content: whether message content goes there; None: as the standard variable says.

    Raises:
        ValueError: something cannot be used; says what is allowed.
    """

    endpoint: str
    protocol: str = "http/protobuf"
    headers: Mapping[str, str] = field(default_factory=dict)
    profile: str = "default"
    content: bool | None = None

    def __post_init__(self) -> None:
        given: Any = self.endpoint  # from a settings file: it may be anything
        if not isinstance(given, str) or not given.startswith(("http://", "https://")) or not urlsplit(given).netloc:
            raise ValueError(f"endpoint {_shown(self.endpoint)}: give a URL that begins with http:// or https://")
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"protocol {self.protocol!r}: allowed are {', '.join(PROTOCOLS)}")
        if self.profile not in PROFILES:
            raise ValueError(f"profile {self.profile!r}: allowed are {', '.join(PROFILES)}")
        headers: Any = self.headers
        if not isinstance(headers, Mapping) or not all(
            isinstance(item, str) for pair in headers.items() for item in pair
        ):
            raise ValueError("headers: give an object of name → text")
        content: Any = self.content
        if content is not None and not isinstance(content, bool):
            raise ValueError(f"content {content!r}: give true, false, or leave it out")

    @classmethod
    def of(cls, entry: Destination | Mapping[str, Any]) -> Destination:
        """From an entry of a settings file.

        Raises:
            ValueError: a key that there is not, or a value that cannot be used.
        """
        if isinstance(entry, Destination):
            return entry
        known = [item.name for item in fields(cls)]
        unknown = sorted(set(entry) - set(known))
        if unknown or "endpoint" not in entry:
            what = f"no {', '.join(unknown)} there" if unknown else "endpoint is missing"
            raise ValueError(f"mirror destination: {what}; it has {', '.join(known)}")
        return cls(**entry)

    @property
    def name(self) -> str:
        """For the log: without what may be a password or a key."""
        return _shown(self.endpoint)

    def sender(self, by_default: Mapping[str, str]) -> Sender:
        """Who sends there."""
        if self.protocol == "grpc":
            return GrpcSender(self.endpoint, self.headers, by_default)
        url = urlsplit(self.endpoint)
        path = url.path.rstrip("/")
        if not path.endswith(_HTTP_PATH):
            path += _HTTP_PATH
        return HttpSender(urlunsplit(url._replace(path=path)), self.headers, by_default)


class Automatic:
    """The process's own TracerProvider as long as it exports, else the standard variables' exporter.

    Looked at anew for each batch: a provider may be set after us. A span goes one way, never both.

    Args:
        name: of the own exporter, for the log.
        own: the standard variables' exporter, None when they name none.
        first: hand spans to the provider; of several exporters of the variables, one does.
    """

    def __init__(self, name: str, own: Sender | None, *, first: bool) -> None:
        self._name = name
        self._own = own
        self._provider: Sender | None = ProviderSender() if first else None
        self._now: Sender | None = None

    def _way(self) -> Sender | None:
        return self._own if global_provider() is None else self._provider

    @property
    def max_span_bytes(self) -> int:
        """Of the way that the batch goes."""
        return 0 if self._now is None else self._now.max_span_bytes

    def wanted(self) -> bool:
        way = self._way()
        return way is not None and way.wanted()

    def load(self) -> None:
        way = self._way()
        if way is not None:
            way.load()

    @property
    def flush_after_s(self) -> float | None:
        """Of the way that the last batch went."""
        return None if self._now is None else self._now.flush_after_s

    def prepare(self) -> None:
        way = self._way()
        if way is not None and way is not self._now:
            logger.info("otel-gym: %s", self._said(way))
        self._now = way
        if way is not None:
            way.prepare()

    def _said(self, way: Sender) -> str:
        if way is self._provider:
            return "spans go through the process's own tracer provider"
        silent = self._provider is not None and set_provider() is not None
        return f"spans go to {self._name}" + (": the process's own tracer provider exports none" if silent else "")

    def limits(self) -> tuple[int | None, int | None]:
        return self._chosen().limits()

    def pack(self, span: LightSpan, attributes: dict[str, Any]) -> tuple[Any, int]:
        return self._chosen().pack(span, attributes)

    def send(self, packed: Sequence[Any]) -> Outcome:
        return self._chosen().send(packed)

    def flush(self) -> None:
        if self._now is not None:
            self._now.flush()

    def _chosen(self) -> Sender:
        if self._now is None:
            raise LookupError("no way was chosen")
        return self._now

    def abandon(self) -> None:
        if self._own is not None:
            self._own.abandon()

    def close(self) -> None:
        if self._own is not None:
            self._own.close()


def standard(by_default: Mapping[str, str], *, unasked: bool) -> list[tuple[str, Sender]]:
    """What the standard variables say: a name for the log and a sender for each exporter, at least one.

    Args:
        by_default: resource attributes for which no variable says anything.
        unasked: send to the standard endpoint even when no variable names one.
    """
    names = environment.trace_exporters() or (["otlp"] if unasked and not environment.silenced() else [])
    protocol = environment.protocol()
    ways = [_by_name(name, protocol, by_default) for name in names] or [("the tracer provider", None)]
    senders: list[tuple[str, Sender]] = []
    for shown, own in ways:
        senders.append((shown, Automatic(shown, own, first=not senders)))
    return senders


def _by_name(name: str, protocol: str, by_default: Mapping[str, str]) -> tuple[str, Sender | None]:
    """The sender that a name in `OTEL_TRACES_EXPORTER` means."""
    otlp = stock.protocol_of(name, protocol)
    if otlp is None:
        return name, ExporterSender(lambda: stock.exporter_class(name), by_default)
    sender = (GrpcSender if otlp == "grpc" else HttpSender)(None, None, by_default)
    return _shown(environment.endpoint(otlp)), sender


def _shown(endpoint: object) -> str:
    url = urlsplit(str(endpoint))
    return urlunsplit((url.scheme, url.netloc.rpartition("@")[2], url.path, "", ""))

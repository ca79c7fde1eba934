"""From the writer's result to the mirror: the ended span of a call, with the receipt for its record.

The copy is made on a writer thread, the rest by the teller, after the call's client was let go. Made only where spans
go somewhere.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import Sampler

from otel_gym.calls import Call
from otel_gym.metrics import watch_mirror
from otel_gym.parentage import Parentage
from otel_gym.settings import Settings
from otel_gym_jsonl import attributes as evidence_names
from otel_gym_jsonl import json_text
from otel_gym_jsonl.files import CAPTURE_SUFFIX
from otel_gym_jsonl.giving_way import give_way
from otel_gym_otlp import environment
from otel_gym_otlp.receipt import Receipt

if TYPE_CHECKING:
    from otel_gym_otlp.copies import LightSpan
    from otel_gym_otlp.mirror import Mirror

logger = logging.getLogger(__name__)

NOT_DURABLE = Receipt(durable=False)
UNTOLD_PART = 3  # of `mirror_queue_bytes`, a third is for calls that nobody was told of yet


def has_destination(settings: Settings) -> bool:
    """Whether spans of calls would go anywhere now: by settings, standard variables, or a provider's processors.

    Looks at the environment and at the process; loads nothing.
    """
    if settings.mirror is False or environment.sdk_disabled():
        return False
    if settings.mirror_destinations is not None:
        return bool(settings.mirror_destinations)
    return bool(settings.mirror or environment.trace_exporters() or _global_provider() is not None)


class Mirroring:
    """The mirror of a pipeline, and where its calls stand among the spans of others.

    Args:
        settings: for which `has_destination` holds.
        standard_sampler: by the standard variables; holds where the process has no provider of its own.

    Raises:
        SettingsError: the capture directory's run id cannot be made or read.
    """

    def __init__(self, settings: Settings, standard_sampler: Sampler) -> None:
        from otel_gym_otlp.copies import bare_copy
        from otel_gym_otlp.mirror import Mirror  # a process without a mirror does not pay for one

        destinations = settings.mirror_destinations
        self._bare_copy = bare_copy
        self.mirror: Mirror = Mirror(
            None if destinations is None else [one.model_dump() for one in destinations],
            unasked=settings.mirror is True,
            queue_bytes=settings.mirror_queue_bytes - settings.mirror_queue_bytes // UNTOLD_PART,
            redact_patterns=settings.redact_patterns,
            default_service_name=settings.model_server_name,
            flush_at_exit_s=0,  # the pipeline closes it, after its writer
        )
        self.parentage = Parentage(
            settings.trace_run_id(), settings.foreign_trace, _sampler(standard_sampler, destinations is None)
        )
        self.provider_name = settings.provider_name
        watch_mirror(self.mirror)
        self.mirror.prepare()

    def copy(self, span: ReadableSpan) -> LightSpan:
        """The mirror's copy of an ended span, still without attributes."""
        return self._bare_copy(span)


def receipt(rollout_id: str, line: bytes) -> Receipt:
    """For a record that is on disk, as this line."""
    return Receipt(True, f"{rollout_id}{CAPTURE_SUFFIX}", len(line), hashlib.sha256(line).hexdigest())


def content(call: Call, evidence: Mapping[str, Any]) -> dict[str, Any]:
    """The content attributes of a call, read from its evidence."""
    try:
        request, response = (_object(evidence, name) for name in (evidence_names.REQUEST, evidence_names.RESPONSE))
        return dict(call.dialect.content(request, response))
    except Exception:
        logger.exception("otel-gym: the content of a call cannot be read; its span goes without")
        return {}


def _object(evidence: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    body = evidence.get(name)
    if body is None:
        return None
    data = body if isinstance(body, bytes) else str(body).encode()
    value = json_text.loads(data)
    give_way(len(data))
    return value if isinstance(value, dict) else None


def _global_provider() -> Any:
    if getattr(trace, "_TRACER_PROVIDER", None) is None:  # nobody has set one: nothing need be loaded to say so
        return None
    from otel_gym_otlp.sdk_senders import global_provider

    return global_provider()


def _sampler(standard: Sampler, follows_the_process: bool) -> Callable[[], Sampler]:
    """Gives the sampler of the process's own provider, where spans go to it, else the standard one."""

    def sampler() -> Sampler:
        provider = _global_provider() if follows_the_process else None
        found = getattr(provider, "sampler", None)
        return found if isinstance(found, Sampler) else standard

    return sampler

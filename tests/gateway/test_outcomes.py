"""The header that names the outcome of an upstream attempt."""

from __future__ import annotations

import pytest

from otel_gym.gateway import OUTCOME_HEADER
from otel_gym.gateway.outcomes import Outcome


@pytest.mark.parametrize(
    ("outcome", "header"),
    [
        (Outcome(True, 503, "local", "gave_up"), b"attempted=true, status=503, source=local, reason=gave_up"),
        (Outcome(False, None, None), b"attempted=false"),
        (Outcome(True, 200, "upstream"), b"attempted=true, status=200, source=upstream"),
    ],
)
def test_what_is_said_is_read(outcome: Outcome, header: bytes) -> None:
    assert header == outcome.header()
    assert outcome == Outcome.said_by([(b"x-other", b"attempted=true"), (OUTCOME_HEADER, header)])


@pytest.mark.parametrize(
    ("header", "outcome"),
    [
        (b"", None),
        (b"yes", None),
        (b"attempted=1", None),
        (b"source=local", None),
        (b"attempted=true,status=5000,source=us,reason=", Outcome(True, None, None)),
        (b"attempted=true;status=500", None),
        ("attempted=false , status=\u00b2\u00b2\u00b2".encode("latin-1"), Outcome(False, None, None)),
        (b"attempted=true, reason=" + b"x" * 999, Outcome(True, None, None, "x" * 200)),
    ],
)
def test_what_cannot_be_read_is_left_out(header: bytes, outcome: Outcome | None) -> None:
    assert outcome == Outcome.said_by([(OUTCOME_HEADER, header)])
    assert Outcome.said_by([]) is None

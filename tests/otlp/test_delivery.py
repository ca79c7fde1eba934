"""Who would send spans again is told when they are there."""

from __future__ import annotations

from typing import Any

from otel_gym_otlp import Mirror
from otel_gym_otlp.delivery import Delivery
from tests.otlp.spans import ended
from tests.services.receiver import receiver_running


def to(endpoint: str) -> dict[str, Any]:
    return {"endpoint": endpoint, "protocol": "http/protobuf"}


def offered(mirror: Mirror, spans: int) -> list[str]:
    said: list[str] = []
    delivery = Delivery(lambda: said.append("arrived"))
    for number in range(spans):
        mirror.offer(ended(str(number)), delivery=delivery)
    delivery.complete()
    return said


def test_all_of_them_have_arrived_once_every_destination_has_them() -> None:
    with receiver_running("http") as one, receiver_running("http") as two:
        mirror = Mirror([to(one.endpoint), to(two.endpoint)])
        said = offered(mirror, 5)
        assert mirror.close(10)
        assert (["arrived"], 5, 5) == (said, len(one.spans), len(two.spans))


def test_what_one_destination_lacks_has_not_arrived() -> None:
    with receiver_running("http") as one:
        mirror = Mirror([to(one.endpoint), to("http://127.0.0.1:9")])
        said = offered(mirror, 5)
        assert not mirror.close(1)
        assert ([], 5) == (said, len(one.spans))


def test_what_there_was_no_room_for_has_not_arrived() -> None:
    mirror = Mirror([to("http://127.0.0.1:9")], queue_spans=2)
    said = offered(mirror, 5)
    mirror.close(0.1)
    assert [] == said


def test_before_all_have_been_offered_nothing_is_said() -> None:
    said: list[str] = []
    delivery = Delivery(lambda: said.append("arrived"))
    delivery.offered()
    delivery.settled(arrived=True)
    assert [] == said
    delivery.complete()
    assert ["arrived"] == said


def test_where_nothing_is_sent_nothing_is_missing() -> None:
    assert ["arrived"] == offered(Mirror([]), 3)

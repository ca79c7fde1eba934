from __future__ import annotations

import pytest

from otel_gym.rollouts.model_servers import ModelServers

SERVERS = ModelServers(
    {
        "plain": "http://h",
        "port": "http://h:8000/v1",
        "secure": "https://S.example:443/",
        "proxy": "http://p:1/a",
        "deeper": "http://p:1/a/b/",
    }
)


@pytest.mark.parametrize(
    ("scheme", "host", "port", "path", "root"),
    [
        ("http", "h", None, b"/v1/responses", b""),
        ("http", "H", 80, b"/v1/responses?x=1", b""),
        ("http", "h", 8000, b"/v1/responses", b""),
        ("https", "s.example", None, b"/v1/responses", b""),
        ("https", "h", None, b"/v1/responses", None),
        ("http", "h", 8001, b"/v1/responses", None),
        ("http", "other", None, b"/v1/responses", None),
        ("http", "p", 1, b"/a/v1/responses", b"/a"),
        ("http", "p", 1, b"/a/b/v1/responses", b"/a/b"),
        ("http", "p", 1, b"/ab/v1/responses", None),
        ("http", "p", 1, b"/v1/responses", None),
    ],
)
def test_a_request_belongs_to_the_server_whose_url_it_begins_with(
    scheme: str, host: str, port: int | None, path: bytes, root: bytes | None
) -> None:
    assert root == SERVERS.root_of(scheme, host, port, path)


def test_a_url_is_given_without_slash_and_api() -> None:
    assert ["http://h:8000", "http://p:1/a/b"] == [SERVERS.url("port"), SERVERS.url("deeper")]

"""`otel-gym gateway`: a model server in front of any OpenAI- or Anthropic-compatible upstream, with capture inside.

One line on stderr says where it listens once it does; there is no result. It ends, everything durable, on SIGINT (exit
code 130) or SIGTERM (the signal, which a shell shows as 143). What keeps it from serving is exit code 2.
"""

from __future__ import annotations

import argparse
import errno
import ipaddress
import logging
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from otel_gym.cli.capture_directory import directory_to_make
from otel_gym.errors import MissingExtraError, SettingsError

if TYPE_CHECKING:
    from otel_gym.cli import Subparsers
    from otel_gym.gateway import Configuration, Gateway, Limits

_KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
_BACKLOG = 2048
_HIGHEST_PORT = 65535
_PORT_ERRORS = {
    errno.EADDRINUSE: "at which another program listens already",
    errno.EACCES: "at which this user may not listen",
}
# What these say at lower levels has headers in it, and so keys.
_TELLTALES = ("httpx", "httpcore", "hpack", "h2")


def add_parser(subparsers: Subparsers) -> None:
    """Add `gateway` to the command line."""
    parser = subparsers.add_parser(
        "gateway",
        help="a model server in front of any upstream, with capture inside",
        description="Pass model calls on to an OpenAI- or Anthropic-compatible server, as they come, both ways, and "
        "capture those under /ng-rollout/<id>. Clients get http://HOST:PORT/ng-rollout/<id> (and /v1 where they want "
        "it) for a base URL; nothing else changes.",
        epilog="What no option says stands in the environment, as docs/settings.md has it. Exit code 2, before "
        "anything is served: wrong usage, a setting that cannot be used, an address or port that cannot be listened "
        "at; 130 and 143 after SIGINT and SIGTERM.",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--upstream", metavar="URL", help="base URL of the upstream, with or without /v1")
    where.add_argument("--upstreams", metavar="FILE", type=Path, help="YAML file of several, chosen by model")
    parser.add_argument("--name", help="name of this model server in the records (model_ref.name)")
    parser.add_argument(
        "--capture-dir",
        metavar="DIR",
        type=directory_to_make,
        help="where the records go, from the current directory on unless it is absolute; else as settings say",
    )
    parser.add_argument(
        "--staging-log",
        metavar="DIR",
        type=Path,
        help="the upstream is a worker that stages tokens; what became of each training call goes there",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (%(default)s)")
    parser.add_argument("--port", type=_port, default=8080, help="port to listen at; 0: a free one (%(default)s)")
    parser.add_argument("--log-level", choices=("error", "warning", "info", "debug"), default="warning")

    keys = parser.add_argument_group("keys", "Never on the command line; in no log and no record.")
    key = keys.add_mutually_exclusive_group()
    key.add_argument("--key-env", metavar="NAME", help="variable with the upstream's key, in the client's place")
    key.add_argument("--key-file", metavar="FILE", type=Path, help="file with it")
    keys.add_argument("--key-header", choices=_KEY_HEADERS, help="where the upstream looks for it")
    keys.add_argument("--client-keys-file", metavar="FILE", type=Path, help="who may call, a key a line")
    keys.add_argument(
        "--allow-any-client", action="store_true", help="listen beyond this machine without --client-keys-file"
    )

    limits = parser.add_argument_group("limits", "Times in seconds; 0 waits for ever.")
    limits.add_argument("--connect-timeout", type=_seconds, default=10.0, metavar="S", help="(%(default)g)")
    limits.add_argument(
        "--read-timeout",
        type=_seconds,
        default=600.0,
        metavar="S",
        help="between pieces of an answer (%(default)g)",
    )
    limits.add_argument("--write-timeout", type=_seconds, default=60.0, metavar="S", help="(%(default)g)")
    limits.add_argument(
        "--pool-timeout", type=_seconds, default=60.0, metavar="S", help="for a free connection (%(default)g)"
    )
    limits.add_argument("--max-connections", type=_positive, default=1000, metavar="N", help="(%(default)d)")
    limits.add_argument(
        "--keepalive", type=_seconds, default=4.0, metavar="S", help="of idle connections to the upstream (%(default)g)"
    )
    limits.add_argument(
        "--retries",
        type=_whole,
        default=0,
        metavar="N",
        help="further attempts when the upstream fails before its answer's first byte, each recorded (%(default)d)",
    )


def run(args: argparse.Namespace) -> int:
    """Do it, and return the exit code."""
    try:
        import uvicorn  # an extra, as is what the gateway itself imports
    except ImportError as error:
        raise MissingExtraError("the gateway", "gateway") from error
    gateway = _gateway(args)
    with _listen(args.host, args.port) as listening:
        logging.basicConfig(level=args.log_level.upper(), stream=sys.stderr)
        for name in _TELLTALES:
            logging.getLogger(name).setLevel(logging.WARNING)
        config = uvicorn.Config(
            gateway,
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,  # the upstream's own headers pass
            date_header=False,
        )
        _say_where(args, listening.getsockname()[1], gateway)
        server = uvicorn.Server(config)
        server.run(sockets=[listening])
    return 0 if server.started else 1


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        host.encode("idna")  # `create_server` would leave a socket open
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except UnicodeError:
        reason = "no name of a host"
    except OSError as error:
        if error.errno in _PORT_ERRORS:
            raise SettingsError(
                f"gateway --port: got {port}, {_PORT_ERRORS[error.errno]} on {host}; allowed: a free port; stop what "
                "listens there, give another --port, or 0 for any that is free"
            ) from None
        reason = str(error.strerror or error).partition(" (while ")[0]  # the library's own words: where it was
    raise SettingsError(
        f"gateway --host: got {host!r}, where this machine cannot listen ({reason}); allowed: an address of this "
        "machine; correct it, or leave it out for 127.0.0.1"
    )


def _gateway(args: argparse.Namespace) -> Gateway:
    from otel_gym.gateway import ClientKeys, Gateway, Limits, Staging, StagingLog, make_client
    from otel_gym.settings import Settings

    client_keys = None if args.client_keys_file is None else ClientKeys.from_file(args.client_keys_file)
    if client_keys is None and not args.allow_any_client and not _is_this_machine(args.host):
        raise SettingsError(
            f"gateway --host: got {args.host!r}, where anybody could call with the upstream's key; allowed: "
            "this machine's own address, 127.0.0.1; give --client-keys-file, or say --allow-any-client"
        )
    configuration = _configuration(args)
    log = args.staging_log.absolute() if args.staging_log is not None else configuration.staging_log
    if configuration.external_staging and log is None:
        raise SettingsError(
            "token_id_capture.external_staging: got true and no place for its log; allowed: true with staging_log, a "
            "directory; name one there or with --staging-log"
        )
    staging = Staging(StagingLog(log)) if log is not None and configuration.external_staging else None
    values = {"model_server_name": args.name, "model_call_capture_dir": args.capture_dir}
    if args.capture_dir is not None:
        values["observability_enabled"] = True
    return Gateway(
        make_client(_limits(args, Limits)),
        configuration.upstreams,
        Settings(**{key: value for key, value in values.items() if value is not None}),
        client_keys=client_keys,
        retries=args.retries,
        staging=staging,
    )


def _configuration(args: argparse.Namespace) -> Configuration:
    from otel_gym.gateway import Configuration, Upstream, Upstreams, read_configuration
    from otel_gym.gateway.configuration import key_of

    if args.upstreams is not None:
        if args.key_env or args.key_file or args.key_header:
            raise SettingsError("--key-…: got one with --upstreams; allowed: keys in the file; name them there")
        found = read_configuration(args.upstreams)
        return found._replace(external_staging=found.external_staging or args.staging_log is not None)
    key = key_of(args.key_env, args.key_file)
    upstreams = Upstreams([Upstream(args.upstream, key=key, key_header=args.key_header)], "upstream")
    return Configuration(upstreams, external_staging=args.staging_log is not None)


def _limits(args: argparse.Namespace, make: type[Limits]) -> Limits:
    return make(
        max_connections=args.max_connections,
        keepalive_s=args.keepalive,
        connect_timeout_s=args.connect_timeout or None,
        read_timeout_s=args.read_timeout or None,
        write_timeout_s=args.write_timeout or None,
        pool_timeout_s=args.pool_timeout or None,
    )


def _say_where(args: argparse.Namespace, port: int, gateway: Gateway) -> None:
    host = f"[{args.host}]" if ":" in args.host else args.host
    settings = gateway.capture.settings
    records = f"records in {settings.model_call_capture_dir}" if settings.observability_enabled else "capture is off"
    print(
        f"otel-gym gateway: http://{host}:{port} in front of {args.upstream or args.upstreams}; {records}",
        file=sys.stderr,
        flush=True,
    )


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= _HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed: a port from 1 to {_HIGHEST_PORT}; 0: any free one")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed: seconds from 0")
    return value


def _whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed: a whole number from 0")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}; allowed: a whole number from 1")
    return value

"""The settings, read once: code beats environment beats file.

Field `x` is the variable `OTEL_GYM_X` and the top-level key `x` of the YAML file that `OTEL_GYM_CONFIG_FILE` names;
that file may be a NeMo Gym config, whose other keys are left alone. In the environment a structured value is JSON and
an empty one counts as unset. Nothing else in this package reads the environment. `docs/settings.md` is made from here.

Plain pydantic carries it: pydantic-settings would add a tenth of a second to the start of each server process.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo

from otel_gym.errors import MissingExtraError, SettingsError
from otel_gym.trace_ids import is_run_id, run_id_of

logger = logging.getLogger(__name__)

CONFIG_FILE_VARIABLE = "OTEL_GYM_CONFIG_FILE"

_PREFIX = "OTEL_GYM_"
_DIRECTORY = "model_call_capture_dir"
_OMEGACONF_MISSING = "???"  # how a NeMo Gym config says "to be given elsewhere"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LONGEST_SHOWN = 200


def variable(field: str) -> str:
    """The environment variable of a field: `body_limit_bytes` → `OTEL_GYM_BODY_LIMIT_BYTES`."""
    return _PREFIX + field.upper()


def _no_bool(value: object) -> object:
    # pydantic takes true for 1; as a size or a time that is a slip.
    if isinstance(value, bool):
        raise ValueError("not a number")
    return value


_Whole = Annotated[int, BeforeValidator(_no_bool)]
_Seconds = Annotated[float, BeforeValidator(_no_bool)]


def _setting(default: Any, meaning: str, allowed: str, default_text: str | None = None, **constraints: Any) -> Any:
    """A field with all that its row in the documentation and its error message say."""
    words: dict[str, Any] = {
        "allowed": allowed,
        "default": json.dumps(default) if default_text is None else default_text,
    }
    return Field(default=default, description=meaning, json_schema_extra=words, **constraints)


class MirrorDestination(BaseModel):
    """An OTLP backend; what its keys mean and allow: `otel_gym_otlp.Destination`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoint: str = Field(pattern=r"^https?://[^/?#]")
    protocol: Literal["http/protobuf", "grpc"] = "http/protobuf"
    headers: dict[str, str] = Field(default={}, repr=False)
    profile: Literal["default", "phoenix", "langfuse"] = "default"
    content: bool | None = None


def secret(name: str) -> str:
    """The value of an environment variable that a user has named as the place of a secret; it is in no message.

    Raises:
        SettingsError: it is unset, or empty.
    """
    value = os.environ.get(name, "").strip()
    if not value:
        raise SettingsError(f"{name}: got nothing; allowed: a secret; set this variable, or name the one that holds it")
    return value


class Settings(BaseModel):
    """All that can be set. Making one reads environment and file, and touches nothing on disk.

    Args:
        **code: values that beat environment and file; a path or a number may be given as text.

    Raises:
        SettingsError: values that cannot be used, each with what was got, what is allowed and what to do.
        MissingExtraError: `OTEL_GYM_CONFIG_FILE` is set and PyYAML is not installed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    observability_enabled: bool = _setting(
        False,
        "Capture on. When off, the rollout prefix is still taken off the path, and nothing else happens.",
        "true or false",
        "false; true when the environment names a directory and does not say false",
    )
    model_call_capture_dir: Path | None = _setting(
        None,
        "Where the capture files go; made at start-up when missing.",
        "absolute path of a directory that can be written",
        "required when enabled",
    )
    model_server_name: str | None = _setting(
        None, "`model_ref.name` of each record; null: no `model_ref`.", "text in UTF-8"
    )
    model_servers: dict[str, str] = _setting(
        {}, "Base URL of each model server by its name, for `resolve_model_base_url`.", "object of name → http(s) URL"
    )
    body_limit_bytes: _Whole = _setting(
        268_435_456,
        "What is kept of one body, decoded; a call with a larger one is recorded without it and its rollout marked.",
        "whole number, at least 1",
        ge=1,
    )
    write_timeout_s: _Seconds = _setting(
        30.0,
        "Seconds that an answer waits for its record to be durable; after them it goes and the rollout is marked.",
        "number above 0",
        "30",
        gt=0,
        allow_inf_nan=False,
    )
    writer_threads: _Whole = _setting(
        4,
        "Threads that write, at most; on Linux two do while the disk is quick, and sync 64 files each side by side.",
        "whole number, 1 to 256",
        ge=1,
        le=256,
    )
    max_open_files: _Whole = _setting(256, "Capture files kept open between records.", "whole number, at least 1", ge=1)
    rollout_id_header: str | None = _setting(
        None, "Request header that carries the rollout id where the path has none.", "name of an HTTP header"
    )
    rollout_id_baggage: bool = _setting(
        False, "Take the rollout id from W3C baggage where path and header have none.", "true or false"
    )
    websockets: Literal["refuse", "pass"] = _setting(
        "refuse",
        "A websocket upgrade of a captured path under a prefix: answered 426, or let through uncaptured.",
        "`refuse` or `pass`",
    )
    mirror: bool | None = _setting(
        None,
        "Spans to OTLP; true without a destination: to the standard endpoint of this machine.",
        "true or false",
        "true when a destination is configured",
    )
    mirror_destinations: list[MirrorDestination] | None = _setting(
        None,
        "Where spans go instead of where the standard variables say.",
        "list of {endpoint, protocol, headers, profile, content}: an http(s) URL, `http/protobuf` or `grpc`, object of "
        "name → text, `default`, `phoenix` or `langfuse`, true or false; all but the endpoint may be left out",
        "the standard variables' one",
        repr=False,  # its headers may be keys
    )
    mirror_queue_bytes: _Whole = _setting(
        67_108_864,
        "Bound of the memory of calls and spans that wait to be sent.",
        "whole number, at least 65536",
        ge=65_536,
    )
    run_id: str | None = _setting(
        None, "Seed of the ids of traces.", "one line of text", "from `.otel-gym-run-id` in the capture directory"
    )
    foreign_trace: Literal["link", "parent"] = _setting(
        "link",
        "What a caller's span of another trace becomes: a link from the rollout's trace, or the parent.",
        "`link` or `parent`",
    )
    provider_name: str | None = _setting(
        None,
        "`gen_ai.provider.name` of each span.",
        "text",
        "what is known, else `openai` / `anthropic` by dialect",
    )
    redact_patterns: list[str] = _setting(
        [], "What these match is replaced in content that is sent.", "list of regular expressions"
    )

    def __init__(self, **code: Any) -> None:
        values, sources = _gather(code)
        try:
            super().__init__(**values)
        except ValidationError as error:
            # `from None`: pydantic's own text says the same in more lines and other names.
            raise SettingsError(_explain(error, values, sources)) from None
        if self.observability_enabled:
            _named(self.model_call_capture_dir, sources.get(_DIRECTORY, ""))

    @field_validator("model_server_name", "rollout_id_header", "mirror", "run_id", "provider_name", mode="before")
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("model_server_name")
    @classmethod
    def _name_can_be_stored(cls, value: str | None) -> str | None:
        if value is not None:
            value.encode()  # bytes of the environment that are no UTF-8 would cost every record
        return value

    @field_validator("rollout_id_header")
    @classmethod
    def _header_is_a_token(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not _HEADER_NAME.fullmatch(value):
            raise ValueError("no header name")
        return value.lower()  # as ASGI has them

    @field_validator("model_servers")
    @classmethod
    def _servers_have_urls(cls, value: dict[str, str]) -> dict[str, str]:
        if not all(url.startswith(("http://", "https://")) for url in value.values()):
            raise ValueError("no http URL")
        return value

    @field_validator("run_id")
    @classmethod
    def _run_id_is_one_line(cls, value: str | None) -> str | None:
        if value is not None and not is_run_id(value):
            raise ValueError("no run id")
        return value

    @field_validator("redact_patterns")
    @classmethod
    def _patterns_compile(cls, value: list[str]) -> list[str]:
        for pattern in value:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(str(error)) from None
        return value

    def trace_run_id(self) -> str:
        """The seed of trace ids: the setting, else that of the capture directory, made when there is none.

        For start-up, not for the event loop.

        Raises:
            SettingsError: the directory's cannot be made or read.
        """
        if self.run_id is not None:
            return self.run_id
        return run_id_of(_named(self.model_call_capture_dir, variable(_DIRECTORY)))

    def open_capture_dir(self) -> Path:
        """Make the capture directory when it is missing and prove, with a nameless file, that it can be written.

        For start-up, not for the event loop. Returns the directory.

        Raises:
            SettingsError: none is set, or it cannot be made or written, or is no directory.
        """
        from otel_gym_jsonl.files import make_directory  # here: most processes that read settings write no capture

        field = variable(_DIRECTORY)
        directory = _named(self.model_call_capture_dir, field)
        try:
            make_directory(directory)
            with tempfile.TemporaryFile(dir=directory):
                pass
        except (OSError, ValueError) as error:
            reason = (isinstance(error, OSError) and error.strerror) or str(error)
            raise SettingsError(
                f"{field}: got {str(directory)!r}, which cannot be used ({reason}); allowed: a directory that "
                "this process can make and write; change its owner or mode, or name another"
            ) from None  # what was tried says no more, in many lines
        return directory


def _named(directory: Path | None, source: str) -> Path:
    if directory is None:
        raise SettingsError(
            f"{variable(_DIRECTORY)}: got nothing while capture is on; allowed: the absolute path of a "
            "directory that can be written; set it, or switch capture off with "
            f"{variable('observability_enabled')}=false"
        )
    if not directory.is_absolute():
        raise SettingsError(
            f"{source}: got {str(directory)!r}; allowed: an absolute path, so that each server and reader of a run "
            f"means the same directory; write it in full, such as {str(Path.cwd() / directory)!r}"
        )
    return directory


def _gather(code: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """What the sources say, the strongest last, and for each field the words that name its source."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    environment = {name: text.strip() for name, text in os.environ.items() if name.startswith(_PREFIX) and text.strip()}
    _warn_of_unknown(environment)

    config_file = environment.get(CONFIG_FILE_VARIABLE)
    if config_file is not None:
        for field, value in _read_file(Path(config_file)).items():
            values[field], sources[field] = value, f"{field} in {config_file}"

    if variable(_DIRECTORY) in environment:
        values.setdefault("observability_enabled", True)
    for field, info in Settings.model_fields.items():
        text = environment.get(variable(field))
        if text is not None:
            values[field], sources[field] = _from_text(field, info, text), variable(field)

    for field, value in code.items():
        values[field], sources[field] = value, f"Settings({field}=…)"

    if values.get(_DIRECTORY) is not None and "observability_enabled" not in values:
        logger.warning("%s names a directory, but capture is off: set observability_enabled too", sources[_DIRECTORY])
    return values, sources


def _from_text(field: str, info: FieldInfo, text: str) -> Any:
    if not _is_structured(info.annotation):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise SettingsError(_refusal(variable(field), text, info, "JSON, ")) from None


def _is_structured(annotation: Any) -> bool:
    """Whether the values of a type are JSON in the environment: objects and lists, optional or not."""
    return get_origin(annotation) in (dict, list) or any(
        get_origin(one) in (dict, list) for one in get_args(annotation)
    )


def _read_file(path: Path) -> dict[str, Any]:
    """The known top-level keys of a YAML file; null, an empty text and OmegaConf's `???` count as unset."""
    try:
        import yaml  # an extra: most servers are set by their environment alone
    except ImportError as error:
        raise MissingExtraError(CONFIG_FILE_VARIABLE, "yaml") from error

    class Tolerant(yaml.SafeLoader):
        """Reads past other programs' tags, whose values are none of ours."""

    Tolerant.add_constructor(None, lambda loader, node: None)
    try:
        content = yaml.load(path.read_bytes(), Loader=Tolerant)  # noqa: S506  (it is a SafeLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        # `from None`: YAML's own text says the same in more lines.
        raise SettingsError(
            f"{CONFIG_FILE_VARIABLE}: got {str(path)!r}, which cannot be read ({why_unreadable(error)}); allowed: a "
            "YAML file; correct the path or the file, or unset the variable"
        ) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(
            f"{CONFIG_FILE_VARIABLE}: got {str(path)!r}, which holds a {type(content).__name__}; allowed: a YAML file "
            "with keys at its top level; correct the path or the file, or unset the variable"
        )
    return {
        field: content[field]
        for field in Settings.model_fields
        if content.get(field) not in (None, "", _OMEGACONF_MISSING)
    }


def why_unreadable(error: Exception) -> str:
    """What keeps a YAML file from being read, in one line: an error of the system, of YAML, or of its text."""
    mark = getattr(error, "problem_mark", None)  # PyYAML may not be installed
    if mark is not None:
        return f"{getattr(error, 'problem', error)} in line {mark.line + 1}, column {mark.column + 1}"
    return (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())


def _warn_of_unknown(environment: Mapping[str, str]) -> None:
    known = {CONFIG_FILE_VARIABLE, *map(variable, Settings.model_fields)}
    for name in sorted(environment.keys() - known):
        logger.warning("%s is no setting and has no effect; the nearest known name is %s", name, _nearest(name, known))


def _nearest(name: str, known: set[str]) -> str:
    return difflib.get_close_matches(name, sorted(known), n=1, cutoff=0)[0]


def _explain(error: ValidationError, values: Mapping[str, Any], sources: Mapping[str, str]) -> str:
    """One line a setting, however much pydantic has to say of it."""
    lines: dict[str, str] = {}
    for detail in error.errors(include_url=False, include_context=False):
        field = str(detail["loc"][0])
        info = Settings.model_fields.get(field)
        if info is not None:
            source = sources[field]
            lines[field] = _refusal(source, os.environ.get(source, "").strip() or values[field], info)
        else:
            nearest = _nearest(field, set(Settings.model_fields))
            lines[field] = (
                f"Settings({field}=…): got a name that is no setting; the nearest that is allowed is {nearest}"
            )
    return "\n".join(lines.values())


def _refusal(source: str, got: object, info: FieldInfo, form: str = "") -> str:
    shown = repr(got) if info.repr else "a value that is not shown here, since it may hold keys"
    if len(shown) > _LONGEST_SHOWN:
        shown = shown[:_LONGEST_SHOWN] + "…"
    words = info.json_schema_extra
    allowed = words["allowed"] if isinstance(words, dict) else ""
    return f"{source}: got {shown}; allowed: {form}{allowed}; correct it, or leave it out for the default"

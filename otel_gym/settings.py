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
from typing import Annotated, Any, Literal, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo

from otel_gym.errors import MissingExtraError, SettingsError

logger = logging.getLogger(__name__)

CONFIG_FILE_VARIABLE = "OTEL_GYM_CONFIG_FILE"

# Settings that come with their own feature. They are this project's names all the same, and one environment may serve
# several versions, so nobody is warned of them.
RESERVED = frozenset(
    {
        "foreign_trace",
        "mirror",
        "mirror_destinations",
        "mirror_queue_bytes",
        "provider_name",
        "redact_patterns",
        "run_id",
    }
)

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
    model_server_name: str | None = _setting(None, "`model_ref.name` of each record; null: no `model_ref`.", "text")
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
        4, "Threads that write; so many rollouts are fsynced at once.", "whole number, 1 to 256", ge=1, le=256
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

    def __init__(self, **code: Any) -> None:
        values, sources = _gather(code)
        try:
            super().__init__(**values)
        except ValidationError as error:
            # `from None`: pydantic's own text says the same in more lines and other names.
            raise SettingsError(_explain(error, values, sources)) from None
        if self.observability_enabled:
            _named(self.model_call_capture_dir, sources.get(_DIRECTORY, ""))

    @field_validator("model_server_name", "rollout_id_header", mode="before")
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return None if value == "" else value

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

    def open_capture_dir(self) -> Path:
        """Make the capture directory when it is missing and prove, with a nameless file, that it can be written.

        For start-up, not for the event loop. Returns the directory.

        Raises:
            SettingsError: none is set, or it cannot be made or written, or is no directory.
        """
        field = variable(_DIRECTORY)
        directory = _named(self.model_call_capture_dir, field)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=directory):
                pass
        except (OSError, ValueError) as error:
            reason = (isinstance(error, OSError) and error.strerror) or str(error)
            raise SettingsError(
                f"{field}: got {str(directory)!r}, which cannot be used ({reason}); allowed: a directory that "
                "this process can make and write; change its owner or mode, or name another"
            ) from error
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
    if get_origin(info.annotation) not in (dict, list):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise SettingsError(_refusal(variable(field), text, info, "JSON, ")) from None


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
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SettingsError(
            f"{CONFIG_FILE_VARIABLE}: got {str(path)!r}, which cannot be read ({error}); allowed: a YAML file; correct "
            "the path or the file, or unset the variable"
        ) from error
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


def _warn_of_unknown(environment: Mapping[str, str]) -> None:
    known = {CONFIG_FILE_VARIABLE, *map(variable, RESERVED), *map(variable, Settings.model_fields)}
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
            lines[field] = _refusal(sources[field], values[field], info)
        else:
            nearest = _nearest(field, set(Settings.model_fields))
            lines[field] = (
                f"Settings({field}=…): got a name that is no setting; the nearest that is allowed is {nearest}"
            )
    return "\n".join(lines.values())


def _refusal(source: str, got: object, info: FieldInfo, form: str = "") -> str:
    shown = repr(got)
    if len(shown) > _LONGEST_SHOWN:
        shown = shown[:_LONGEST_SHOWN] + "…"
    words = info.json_schema_extra
    allowed = words["allowed"] if isinstance(words, dict) else ""
    return f"{source}: got {shown}; allowed: {form}{allowed}; correct it, or leave it out for the default"

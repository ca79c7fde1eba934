"""What a gateway does, as a YAML file says it.

default: policy                       # for models that none names; without it they are answered 404
upstreams:
  - name: policy
    url: http://127.0.0.1:8000/v1
  - name: judge
    url: https://api.openai.com/v1
    models: [gpt-5, "gpt-5-*"]        # names, or patterns as a shell has them
    key_env: OPENAI_API_KEY           # or key_file: a path, from the directory of this file
    key_header: authorization         # or x-api-key, api-key, x-goog-api-key; else where the client has its key
token_id_capture:
  external_staging: false             # true: the upstreams are workers that stage tokens (docs/staging.md)
staging_log: staging                  # where it is recorded what became of each such call: a path, from here
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from otel_gym.errors import MissingExtraError, SettingsError
from otel_gym.gateway.keys import Key
from otel_gym.gateway.upstreams import Upstream, Upstreams
from otel_gym.settings import why_unreadable

KeyHeader = Literal["authorization", "x-api-key", "api-key", "x-goog-api-key"]


class _Upstream(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    url: str
    models: list[str] = []
    key_env: str | None = None
    key_file: Path | None = None
    key_header: KeyHeader | None = None

    def made(self, directory: Path) -> Upstream:
        key_file = None if self.key_file is None else directory / self.key_file
        return Upstream(self.url, self.name, self.models, key_of(self.key_env, key_file), self.key_header)


class _TokenIdCapture(BaseModel):
    model_config = ConfigDict(extra="forbid")

    external_staging: bool = False


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    upstreams: list[_Upstream] = Field(min_length=1)
    default: str | None = None
    token_id_capture: _TokenIdCapture = _TokenIdCapture()
    staging_log: Path | None = None


class Configuration(NamedTuple):
    """What a file says.

    Attributes:
        upstreams: where requests go.
        external_staging: they are workers that stage tokens.
        staging_log: where it is recorded what became of staged calls; None where the file does not say.
    """

    upstreams: Upstreams
    external_staging: bool = False
    staging_log: Path | None = None


def key_of(variable: str | None, path: Path | None) -> Key | None:
    """The upstream's key from where it is said to be; None where it is nowhere.

    Raises:
        SettingsError: it is not there, or at two places.
    """
    if variable is not None and path is not None:
        raise SettingsError(f"key: got the variable {variable} and the file {path}; allowed: one of them; drop one")
    if variable is not None:
        return Key.from_environment(variable)
    return None if path is None else Key.from_file(path)


def read_configuration(path: Path) -> Configuration:
    """What a file says.

    Raises:
        SettingsError: the file, or what it says, cannot be used.
        MissingExtraError: PyYAML is not installed.
    """
    try:
        import yaml  # an extra
    except ImportError as error:
        raise MissingExtraError("the file of upstreams", "gateway") from error
    try:
        content: Any = yaml.safe_load(path.read_bytes())
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise SettingsError(
            f"upstreams: got {str(path)!r}, which cannot be read ({why_unreadable(error)}); allowed: a YAML file; "
            "correct the path or the file"
        ) from None
    try:
        file = _File.model_validate(content)
    except ValidationError as error:
        wrong = "\n".join(
            f"{path}: {'.'.join(map(str, detail['loc'])) or 'the file'}: {detail['msg']}; see docs/gateway.md"
            for detail in error.errors(include_url=False, include_context=False, include_input=False)
        )
        raise SettingsError(wrong) from None
    upstreams = Upstreams([upstream.made(path.parent) for upstream in file.upstreams], file.default)
    log = None if file.staging_log is None else (path.parent / file.staging_log).absolute()
    return Configuration(upstreams, file.token_id_capture.external_staging, log)

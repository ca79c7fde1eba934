"""Settings: where a value comes from, and what is said of one that cannot be used."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_gym.errors import MissingExtraError, SettingsError
from otel_gym.settings import Settings, variable


def a_file(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> Path:
    path = folder / "gym.yaml"
    path.write_text(text)
    monkeypatch.setenv("OTEL_GYM_CONFIG_FILE", str(path))
    return path


def test_without_anything_set_capture_is_off_and_the_defaults_are_those_of_the_specification() -> None:
    assert {
        "observability_enabled": False,
        "model_call_capture_dir": None,
        "model_server_name": None,
        "model_servers": {},
        "body_limit_bytes": 268435456,
        "write_timeout_s": 30,
        "writer_threads": 4,
        "max_open_files": 256,
        "rollout_id_header": None,
        "rollout_id_baggage": False,
        "websockets": "refuse",
        "mirror": None,
        "mirror_destinations": None,
        "mirror_queue_bytes": 67108864,
        "run_id": None,
        "foreign_trace": "link",
        "provider_name": None,
        "redact_patterns": [],
    } == Settings().model_dump()


def test_code_beats_environment_beats_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    a_file(monkeypatch, tmp_path, "writer_threads: 1\nmax_open_files: 1\nmodel_server_name: file\n")
    monkeypatch.setenv("OTEL_GYM_MAX_OPEN_FILES", "2")
    monkeypatch.setenv("OTEL_GYM_MODEL_SERVER_NAME", "environment")
    settings = Settings(model_server_name="code")
    assert (1, 2, "code") == (settings.writer_threads, settings.max_open_files, settings.model_server_name)


@pytest.mark.parametrize(
    ("environment", "file", "code", "enabled"),
    [
        ({}, "", {}, False),
        ({"DIR": "/x"}, "", {}, True),
        ({"DIR": "/x", "ENABLED": "false"}, "", {}, False),
        ({"DIR": "/x", "ENABLED": ""}, "", {}, True),  # empty is unset
        ({"DIR": "/x"}, "observability_enabled: false", {}, False),  # a default gives way to what a file says
        ({"DIR": "/x"}, "", {"observability_enabled": False}, False),
        ({"DIR": ""}, "model_call_capture_dir: /x", {}, False),  # only the environment's directory switches capture on
        ({}, "", {"model_call_capture_dir": "/x"}, False),
        ({"ENABLED": "yes"}, "model_call_capture_dir: /x", {}, True),
        ({}, "model_call_capture_dir: /x\nobservability_enabled: true", {}, True),
    ],
)
def test_a_directory_in_the_environment_switches_capture_on(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    environment: dict[str, str],
    file: str,
    code: dict[str, Any],
    enabled: bool,
) -> None:
    names = {"DIR": "OTEL_GYM_MODEL_CALL_CAPTURE_DIR", "ENABLED": "OTEL_GYM_OBSERVABILITY_ENABLED"}
    for short, text in environment.items():
        monkeypatch.setenv(names[short], text)
    a_file(monkeypatch, tmp_path, file)
    assert enabled == Settings(**code).observability_enabled


@pytest.mark.parametrize("text", ["false", "False", "0", "no", "off", "OFF", " false\n"])
def test_a_false_word_in_the_environment_is_false(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("OTEL_GYM_MODEL_CALL_CAPTURE_DIR", "/x")
    monkeypatch.setenv("OTEL_GYM_OBSERVABILITY_ENABLED", text)
    assert Settings().observability_enabled is False


def test_a_structured_value_in_the_environment_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_GYM_MODEL_SERVERS", '{"policy": "http://h:1/v1"}')
    assert {"policy": "http://h:1/v1"} == Settings().model_servers


def test_of_a_nemo_gym_config_only_the_known_top_level_keys_are_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    a_file(
        monkeypatch,
        tmp_path,
        """
        observability_enabled: true
        model_call_capture_dir: /absolute/path/to/model-calls
        model_server_name: ???
        writer_threads:
        global_aiohttp_connector_limit: 1024
        3: a key that is no text
        policy_model:
          responses_api_models:
            vllm_model:
              entrypoint: app.py
              base_url: ${policy_base_url}
              max_open_files: 3
              secret: !vault abc
        """,
    )
    settings = Settings()
    assert settings.observability_enabled is True
    assert Path("/absolute/path/to/model-calls") == settings.model_call_capture_dir
    assert (None, 4, 256) == (settings.model_server_name, settings.writer_threads, settings.max_open_files)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("observability_enabled", "maybe"),
        ("observability_enabled", "2"),
        ("body_limit_bytes", "0"),
        ("body_limit_bytes", "256MiB"),
        ("body_limit_bytes", "1.5"),
        ("write_timeout_s", "0"),
        ("write_timeout_s", "-1"),
        ("write_timeout_s", "nan"),
        ("write_timeout_s", "inf"),
        ("writer_threads", "0"),
        ("writer_threads", "257"),
        ("max_open_files", "0"),
        ("model_server_name", "caf\udce9"),
        ("rollout_id_header", "x rollout"),
        ("rollout_id_baggage", "sometimes"),
        ("websockets", "allow"),
        ("model_servers", "policy=http://h:1"),
        ("model_servers", '["http://h:1"]'),
        ("model_servers", '{"policy": 1}'),
        ("model_servers", '{"policy": "h:1"}'),
    ],
)
def test_a_value_that_cannot_be_used_is_one_line_that_names_its_variable(
    monkeypatch: pytest.MonkeyPatch, field: str, text: str
) -> None:
    """What was got, what is allowed, what to do."""
    monkeypatch.setenv(variable(field), text)
    with pytest.raises(SettingsError) as caught:
        Settings()
    message = str(caught.value)
    assert message.startswith(f"{variable(field)}: got ")
    assert "; allowed: " in message
    assert "; correct it, or leave it out for the default" in message
    assert 1 == len(message.splitlines())


def test_each_unusable_setting_has_its_line_with_its_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = a_file(monkeypatch, tmp_path, "max_open_files: true\nwebsockets: [refuse]\n")
    monkeypatch.setenv("OTEL_GYM_WRITER_THREADS", "many")
    with pytest.raises(SettingsError) as caught:
        Settings(body_limit_bytes="x" * 1000, writer_thread=3)
    lines = str(caught.value).splitlines()
    assert [
        "Settings(body_limit_bytes=…)",
        "OTEL_GYM_WRITER_THREADS",
        f"max_open_files in {path}",
        f"websockets in {path}",
        "Settings(writer_thread=…)",
    ] == [line.split(": got ")[0] for line in lines]
    assert "writer_threads" in lines[-1]
    assert max(map(len, lines)) < 400


def test_capture_without_a_directory_is_an_error_that_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_GYM_OBSERVABILITY_ENABLED", "true")
    with pytest.raises(
        SettingsError, match=r"^OTEL_GYM_MODEL_CALL_CAPTURE_DIR: got nothing while capture is on; allowed"
    ):
        Settings()


def test_a_relative_directory_is_an_error_that_writes_it_in_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTEL_GYM_MODEL_CALL_CAPTURE_DIR", "runs/today")
    with pytest.raises(SettingsError) as caught:
        Settings()
    assert str(caught.value).startswith("OTEL_GYM_MODEL_CALL_CAPTURE_DIR: got 'runs/today'; allowed: an absolute path")
    assert str(tmp_path / "runs/today") in str(caught.value)


def test_a_relative_directory_in_a_gym_config_is_no_matter_while_capture_is_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    a_file(monkeypatch, tmp_path, "observability_enabled: false\nmodel_call_capture_dir: results\n")
    assert Settings().observability_enabled is False


def test_making_settings_touches_nothing_and_opening_makes_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    settings = Settings(observability_enabled=True, model_call_capture_dir=directory)
    assert not directory.parent.exists()
    assert directory == settings.open_capture_dir() == settings.open_capture_dir()
    assert [] == list(directory.iterdir())


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    for directory in (path, path / "below"):
        settings = Settings(observability_enabled=True, model_call_capture_dir=directory)
        with pytest.raises(SettingsError, match="which cannot be used"):
            settings.open_capture_dir()


def test_a_directory_that_cannot_be_written_is_refused_at_start_up(tmp_path: Path) -> None:
    """In a child without root's rights, since root may write anywhere."""
    directory = tmp_path / "sealed"
    directory.mkdir()
    for parent in (*tmp_path.parents, tmp_path):
        if parent.stat().st_uid == os.getuid() and "pytest-" in str(parent):
            parent.chmod(0o755)
    directory.chmod(0o555)
    for below in (".", "new"):
        seen = subprocess.run(
            [sys.executable, "-c", SEALED, str(directory / below)], capture_output=True, text=True, timeout=60
        )
        assert ("Permission denied", "") == (seen.stdout.strip(), seen.stderr)


SEALED = """
import os, sys
from otel_gym.settings import Settings, SettingsError
settings = Settings(observability_enabled=True, model_call_capture_dir=sys.argv[1])
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    settings.open_capture_dir()
except SettingsError as error:
    print("Permission denied" if "(Permission denied)" in str(error) else error)
"""


def test_an_unknown_variable_is_warned_of_with_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_GYM_MODEL_CALL_CAPTURE_DIRECTORY", "/x")
    monkeypatch.setenv("OTEL_GYM_MIROR", "false")
    Settings()
    assert [
        "OTEL_GYM_MIROR is no setting and has no effect; the nearest known name is OTEL_GYM_MIRROR",
        (
            "OTEL_GYM_MODEL_CALL_CAPTURE_DIRECTORY is no setting and has no effect; "
            "the nearest known name is OTEL_GYM_MODEL_CALL_CAPTURE_DIR"
        ),
    ] == caplog.messages


def test_a_directory_that_code_names_without_switching_capture_on_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else a whole run would go by uncaptured, without a word."""
    Settings(model_call_capture_dir="/x")
    assert [(logging.WARNING, "Settings(model_call_capture_dir=…) names a directory, but capture is off")] == [
        (record.levelno, record.getMessage().partition(":")[0]) for record in caplog.records
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("a: [", "cannot be read"), ("- a\n", "holds a list"), ("a: 1\n---\nb: 2\n", "cannot be read")],
)
def test_a_file_that_is_no_mapping_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, reason: str
) -> None:
    path = a_file(monkeypatch, tmp_path, text)
    with pytest.raises(SettingsError, match=reason) as caught:
        Settings()
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [\n", "expected the node content, but found '<stream end>' in line 2, column 1"),
        ("a: 1\nb: {c: ${d}}\n", "expected ',' or '}', but got '{' in line 2, column 9"),
        ("a: 1\n---\nb: 2\n", "but found another document in line 2, column 1"),
        ("a: \x01", "unacceptable character #x0001: special characters are not allowed"),
        pytest.param("[" * 10_000, "recursion", id="nested too deep"),
    ],
)
def test_of_a_file_that_is_no_yaml_one_line_says_what_is_wrong_and_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, reason: str
) -> None:
    path = a_file(monkeypatch, tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        Settings()
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"OTEL_GYM_CONFIG_FILE: got {str(path)!r}, which cannot be read (")
    assert reason in line


@pytest.mark.parametrize(
    "text", ["null", "[]", '{"a": null}', '{"a":"ftp://x"}', pytest.param("[" * 100_000, id="deep")]
)
def test_a_structured_value_that_is_refused_is_shown_as_it_was_given(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("OTEL_GYM_MODEL_SERVERS", text)
    with pytest.raises(SettingsError) as caught:
        Settings()
    assert str(caught.value).startswith(f"OTEL_GYM_MODEL_SERVERS: got '{text[:199]}")
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    a_file(monkeypatch, tmp_path, "").unlink()
    with pytest.raises(SettingsError, match=r"OTEL_GYM_CONFIG_FILE: got .*No such file"):
        Settings()


def test_an_empty_file_sets_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    a_file(monkeypatch, tmp_path, "# nothing yet\n")
    assert Settings() == Settings()


def test_without_pyyaml_a_file_is_an_error_with_the_install_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    a_file(monkeypatch, tmp_path, "writer_threads: 2\n")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'otel-gym\[yaml\]'"):
        Settings()


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().writer_threads = 8


def test_the_documentation_has_a_row_for_each_setting() -> None:
    """`docs/settings.md` is what its generator makes of the code today."""
    root = Path(__file__).parent.parent
    made = subprocess.run(
        [sys.executable, str(root / "docs/make_settings_table.py")],
        capture_output=True,
        text=True,
        check=True,
        encoding="utf-8",
    )
    assert (root / "docs/settings.md").read_text("utf-8") == made.stdout, (
        "run 'python docs/make_settings_table.py --write'"
    )


FOUND_ELSEWHERE = {
    "observability_enabled", "model_call_capture_dir", "mirror", "mirror_destinations", "run_id", "provider_name",
}  # fmt: skip
"""Settings whose default is a matter of the other ones, of a file, or of the call."""


def test_destinations_are_json_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "OTEL_GYM_MIRROR_DESTINATIONS",
        '[{"endpoint": "http://127.0.0.1:4318"}, {"endpoint": "https://b", "protocol": "grpc", "headers": {"k": "v"},'
        ' "profile": "phoenix", "content": true}]',
    )
    assert [
        ("http://127.0.0.1:4318", "http/protobuf", {}, "default", None),
        ("https://b", "grpc", {"k": "v"}, "phoenix", True),
    ] == [tuple(one.model_dump().values()) for one in Settings().mirror_destinations or ()]


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"endpoint": "localhost:4318"},
        {"endpoint": "http://"},
        {"endpoint": "http://a", "protocol": "http/json"},
        {"endpoint": "http://a", "profile": "jaeger"},
        {"endpoint": "http://a", "color": "red"},
        {"endpoint": "http://a", "headers": {"authorization": 1}},
        "http://a",
    ],
    ids=repr,
)
def test_a_destination_that_cannot_be_used_is_refused_without_showing_what_may_be_a_key(entry: Any) -> None:
    secret = {"endpoint": "http://a", "headers": {"authorization": "secret"}}
    with pytest.raises(SettingsError, match=r"mirror_destinations.*not shown.*allowed: list of {endpoint") as refused:
        Settings(mirror_destinations=[secret, entry])
    assert "secret" not in str(refused.value)


def test_the_settings_can_be_shown_without_the_keys_of_destinations() -> None:
    secret = {"endpoint": "http://a", "headers": {"authorization": "secret"}}
    settings = Settings(mirror_destinations=[secret])
    assert "secret" not in repr(settings)
    assert "secret" not in repr(settings.mirror_destinations)


def test_a_text_that_is_no_json_does_not_show_the_keys_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_GYM_MIRROR_DESTINATIONS", '[{"headers": "secret"')
    with pytest.raises(SettingsError, match="OTEL_GYM_MIRROR_DESTINATIONS: got a value that is not shown") as refused:
        Settings()
    assert "secret" not in str(refused.value)


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"redact_patterns.*list of regular expressions"):
        Settings(redact_patterns=["fine", "("])


def test_the_default_in_words_is_the_default() -> None:
    for name, field in Settings.model_fields.items():
        words = field.json_schema_extra
        assert isinstance(words, dict)
        if name not in FOUND_ELSEWHERE:
            assert field.default == json.loads(str(words["default"]))

"""Make docs/settings.md of the fields of `otel_gym.settings.Settings`: to stdout, or with --write in place."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from otel_gym.settings import CONFIG_FILE_VARIABLE, Settings, variable

TEXT = """\
# Settings

<!-- Made by docs/make_settings_table.py of otel_gym/settings.py: change it there. -->

Each setting is a field of `otel_gym.Settings`, a variable in the environment and a top-level key of a YAML file. Code
beats environment beats file. In the environment an object is JSON, and an empty value counts as unset. A value that
cannot be used stops the server at its start with one line that names it; an unknown `OTEL_GYM_…` variable is warned of.

| field = key in the file | variable | type | default | meaning |
|---|---|---|---|---|
{rows}

The file is named by `{config_file}` and needs `pip install 'otel-gym[yaml]'`. It may be a NeMo Gym config: the keys
above are taken from its top level, where `???` and null count as unset, and all else in it is left alone. `${{…}}` is
not resolved: set the variable instead, it beats the file.
"""


def table() -> str:
    """The whole page."""
    rows = []
    for name, field in Settings.model_fields.items():
        words = field.json_schema_extra
        if not isinstance(words, dict):
            raise TypeError(f"{name} has no words for its row: make it with _setting()")
        rows.append(
            f"| `{name}` | `{variable(name)}` | {words['allowed']} | {words['default']} | {field.description} |"
        )
    return TEXT.format(rows="\n".join(rows), config_file=CONFIG_FILE_VARIABLE)


def main() -> None:
    """Print the page, or write it beside this script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/settings.md")
    if parser.parse_args().write:
        Path(__file__).with_name("settings.md").write_text(table(), encoding="utf-8")
    else:
        sys.stdout.buffer.write(table().encode())


if __name__ == "__main__":
    main()

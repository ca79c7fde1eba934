"""Check the rules of the house that no linter knows: a line on stderr for each breach, exit code 1 if there is any."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent

LONGEST_MODULE = 500
# Copies of what is shared with other implementations, kept as they came.
COPIED = {f"tests/conformance/{name}.py" for name in ("driver", "run_cases", "staging_flow")}
LEFTOVERS = {".orig", ".rej", ".bak"}
NAMELESS = {"utils", "helpers", "common", "misc"}
# `Settings` reads the environment; OpenTelemetry's own variables and a terminal's (NO_COLOR, TERM) are no settings.
MAY_READ_ENVIRONMENT = {
    "otel_gym/settings.py",
    "otel_gym/zero_code.py",  # whether to look at the settings at all, in processes that mostly serve nothing
    "otel_gym/cli/run.py",  # makes the environment of the command
    "otel_gym/cli/terminal.py",
    "exporters/otel_gym_otlp/environment.py",
}


def modules() -> Iterator[tuple[str, str]]:
    """Each Python file of the project: its path, from the root, and its text."""
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith((".", "build/", "dist/")) and name not in COPIED:
            yield name, path.read_text("utf-8")


def long_or_nameless(name: str, text: str) -> Iterator[str]:
    """One noun, one module, of a size that one can read."""
    lines = len(text.splitlines())
    if lines > LONGEST_MODULE:
        yield f"{name}: {lines} lines, at most {LONGEST_MODULE}: split it"
    if Path(name).stem in NAMELESS:
        yield f"{name}: name it after the one thing that it holds"


def environment_readers(name: str, text: str) -> Iterator[str]:
    """`Settings` is the only reader of the environment in the packages."""
    if not name.startswith(("otel_gym/", "exporters/")) or name in MAY_READ_ENVIRONMENT:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"):
            yield f"{name}, line {node.lineno}: reads the environment: make it a setting"


def leftovers() -> Iterator[str]:
    """What patches and merges leave behind would go into the wheel."""
    for folder in ("otel_gym", "exporters"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in LEFTOVERS:
                yield f"{path.relative_to(ROOT).as_posix()}: left behind, delete it"


def version_and_changelog() -> Iterator[str]:
    """The changelog begins with what is unreleased, or with the version that the package has."""
    namespace: dict[str, str] = {}
    exec((ROOT / "otel_gym/_version.py").read_text("utf-8"), namespace)  # noqa: S102  (our own file, one assignment)
    version = namespace["__version__"]
    headings = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    if headings[:1] not in (["Unreleased"], [version]):
        yield f"CHANGELOG.md: begins with {headings[:1]}, not with Unreleased or {version}"
    released = [heading for heading in headings if heading != "Unreleased"]
    if released and released[0] != version:
        yield f"CHANGELOG.md: the last release is {released[0]}, the version {version}"


def floors() -> Iterator[str]:
    """The floors that are tested are the floors that are promised."""
    promised = set(map(floor, requires("otel-gym") or ()))
    lines = (ROOT / "requirements/floors.in").read_text("utf-8").splitlines()
    tested = {floor(line) for line in lines if "==" in line}
    for name, version in sorted(promised ^ tested):
        yield f"requirements/floors.in and pyproject.toml differ in {name} {version} (is the tree installed anew?)"


def floor(requirement: str) -> tuple[str, Version]:
    """The project and the version that a requirement such as `orjson>=3.9.15` names."""
    parsed = Requirement(requirement)
    return canonicalize_name(parsed.name), Version(next(iter(parsed.specifier)).version)


def breaches() -> Iterator[str]:
    """Everything that is against the rules."""
    for name, text in modules():
        yield from long_or_nameless(name, text)
        yield from environment_readers(name, text)
    yield from leftovers()
    yield from version_and_changelog()
    yield from floors()


if __name__ == "__main__":
    found = list(breaches())
    print("\n".join(found), file=sys.stderr)
    sys.exit(1 if found else 0)

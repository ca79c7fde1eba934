"""Build the services that tests talk to, Jaeger and a Collector, from Go modules: into `.services/`, once.

A stamp beside each program says what it was built from, so that it is built anew only when the files in `services/`
have changed. Go keeps what it compiled in the user's own cache: the next clone needs seconds, not minutes.

    python scripts/build_services.py              # both
    python scripts/build_services.py collector    # one

Exit codes: 0 all are there, 1 a build failed, 2 Go is missing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / ".services"
# Neither a debugger nor a path of this machine is of use to a test.
GO_BUILD = ("go", "build", "-trimpath", "-ldflags=-s -w")


@dataclass(frozen=True)
class Service:
    """A Go program with its versions in `services/<name>/go.mod`.

    Attributes:
        package: what to build: an import path, or "." for the module's own.
        patience: how long a first build takes on two cores, in words.
    """

    name: str
    package: str
    patience: str

    @property
    def source(self) -> Path:
        """The folder of the module."""
        return ROOT / "services" / self.name

    @property
    def program(self) -> Path:
        """Where the built program is, if it is."""
        return BUILT / self.name

    def fingerprint(self) -> str:
        """SHA-256, in hex, of the files that it is built from."""
        digest = hashlib.sha256()
        for path in sorted(self.source.iterdir()):
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
        return digest.hexdigest()

    def go_version(self) -> str:
        """The oldest Go that builds it."""
        lines = (self.source / "go.mod").read_text().splitlines()
        return next(line.split()[1] for line in lines if line.startswith("go "))

    def is_built(self) -> bool:
        """Whether the program is there, and built from the files as they are now."""
        stamp = self._stamp
        return self.program.exists() and stamp.exists() and stamp.read_text() == self.fingerprint()

    def build(self) -> None:
        """Build it, with the versions of `go.mod` and `go.sum` exactly.

        Raises:
            subprocess.CalledProcessError: Go said why on stderr.
        """
        fingerprint = self.fingerprint()
        unfinished = BUILT / f".{self.name}"
        command = [*GO_BUILD, "-mod=readonly", "-o", str(unfinished), self.package]
        # A go.work in a folder above ours is none of our business.
        subprocess.run(command, cwd=self.source, check=True, env={**os.environ, "GOWORK": "off"})
        self._stamp.unlink(missing_ok=True)
        unfinished.replace(self.program)
        self._stamp.write_text(fingerprint)

    @property
    def _stamp(self) -> Path:
        return BUILT / f"{self.name}.built-from"


JAEGER = Service("jaeger", "github.com/jaegertracing/jaeger/cmd/jaeger", "about 7 minutes, once")
COLLECTOR = Service("collector", ".", "about 30 seconds after Jaeger's, 90 alone")
SERVICES = {service.name: service for service in (JAEGER, COLLECTOR)}


def main(names: list[str]) -> int:
    """Build what is missing of these services; of all without names."""
    unknown = [name for name in names if name not in SERVICES]
    if unknown:
        print(f"no such service: {', '.join(unknown)}; there are {', '.join(SERVICES)}", file=sys.stderr)
        return 2
    BUILT.mkdir(exist_ok=True)
    with (BUILT / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once: the second finds what the first has built
        for service in map(SERVICES.__getitem__, names or SERVICES):
            if service.is_built():
                print(f"{service.name}: there ({service.program.relative_to(ROOT)})")
                continue
            if shutil.which("go") is None:
                print(f"{service.name}: not built, and there is no `go` on PATH to build it", file=sys.stderr)
                print(f"install Go {service.go_version()} or later, then: make services", file=sys.stderr)
                return 2
            print(f"{service.name}: building ({service.patience})", flush=True)
            begun = time.monotonic()
            try:
                service.build()
            except subprocess.CalledProcessError as error:
                print(f"{service.name}: go build ended with exit code {error.returncode}", file=sys.stderr)
                return 1
            print(f"{service.name}: built in {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

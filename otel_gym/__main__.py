"""`python -m otel_gym` is the command `otel-gym`."""

from __future__ import annotations

import sys

from otel_gym.cli import main

if __name__ == "__main__":
    sys.exit(main())

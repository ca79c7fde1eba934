"""Server-sent events: a whole body read as events, and a stream watched while it passes.

events     `Event`, `events()`: what a body says, for the dialects to rebuild
watch      `TerminalWatch`, `FirstToken`: what a chunk completes, on the event loop
"""

from otel_gym.sse.events import DONE, Event, events
from otel_gym.sse.watch import FirstToken, TerminalWatch

__all__ = ["DONE", "Event", "FirstToken", "TerminalWatch", "events"]

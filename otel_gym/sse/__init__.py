"""Server-sent events: a whole body read as events, and a stream watched while it passes.

events     `Event`, `EventStream`, `events()`: what a body says, for the dialects to rebuild
regular    runs of events that differ in one text only, read together
watch      `TerminalWatch`, `FirstToken`: what a chunk completes, on the event loop
"""

from otel_gym.sse.events import DONE, Event, EventStream, events
from otel_gym.sse.watch import FirstToken, TerminalWatch

__all__ = ["DONE", "Event", "EventStream", "FirstToken", "TerminalWatch", "events"]

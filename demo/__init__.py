"""`make demo`: three rollouts against a model server, and what the capture says of them afterwards."""

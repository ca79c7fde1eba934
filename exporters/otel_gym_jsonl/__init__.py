"""The capture format: records of model calls, one JSONL file a rollout."""

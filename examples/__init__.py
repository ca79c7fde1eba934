"""Examples of at most 40 lines each; `tests/test_examples.py` runs them all."""

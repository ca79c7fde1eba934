"""What an inference worker does with tokens, without the weights: a template, a generation, a sink that can fail."""

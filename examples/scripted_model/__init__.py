"""A scripted, tool-using model and the three APIs it speaks: what a real model server is, without the weights."""

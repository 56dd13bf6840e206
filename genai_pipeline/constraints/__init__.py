"""Structured output: what an answer must look like, compiled once into masks over the vocabulary."""

"""Anthropic's interface as pure translation: bodies to arguments of ``Pipeline.aopen``, events to messages."""

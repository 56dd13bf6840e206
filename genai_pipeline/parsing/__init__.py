"""What generated text means: reasoning, tool calls, and what is left as the answer's text."""

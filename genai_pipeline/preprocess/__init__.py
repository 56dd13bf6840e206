"""Text on its way to tokens and back: tokenizers, chat templates, prompts."""

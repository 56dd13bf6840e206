"""``genai-pipeline chat``: conversations with a package, on a terminal or through pipes."""

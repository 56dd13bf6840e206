"""What importers of several formats share: config files of transformers, marks of Whisper, the text of metadata."""

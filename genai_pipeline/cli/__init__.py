"""The command line: every command in a module of its own; nothing heavy is imported before a command runs."""

"""The command line: one file per family of verbs; it parses, calls and prints."""

"""The command line: one file a family of verbs; it parses, calls and prints."""

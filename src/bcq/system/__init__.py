"""Used by every other room: errors, files, signals, progress, random streams."""

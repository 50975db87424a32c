"""What every room stands on: errors, files, signals, progress, random streams."""

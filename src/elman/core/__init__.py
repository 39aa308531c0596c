"""Used by every other package: errors, settings, arrays, and the one writer of files."""

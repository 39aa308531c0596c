"""What everything stands on: errors, settings, arrays, and the one writer of files."""

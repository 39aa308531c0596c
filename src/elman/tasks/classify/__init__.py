"""A label, several, or a number for a whole text."""

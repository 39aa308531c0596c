"""`elman serve`: models over HTTP, in OpenAI's completions protocol and in one of elman's own, and the studio.

Models are used through the text level (`elman.load`) and the language model protocol alone.
"""

"""The corpus that is on every machine: Python's own language reference."""

from __future__ import annotations

import re
from pathlib import Path


def write_corpus(directory: Path) -> dict[str, Path]:
    """Python's language reference as three texts, cut by topic: no topic is in two of them."""
    from elman.core.files import replacing

    directory.mkdir(parents=True, exist_ok=True)
    topics = sorted(topic_texts().values(), key=len, reverse=True)
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for number, text in enumerate(topics):
        parts[{4: "valid", 7: "test"}.get(number % 10, "train")].append(text)
    paths = {name: directory / f"{name}.txt" for name in parts}
    for name, texts in parts.items():
        with replacing(paths[name]) as temporary:
            temporary.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return paths


def topic_texts() -> dict[str, str]:
    """Each topic, a line for a paragraph of prose and for a line of code.

    Rules, tables and frames of lines are left out; and, since many topics quote others, whatever was there already.
    """
    from pydoc_data.topics import topics

    seen: set[str] = set()
    found = {}
    for name, text in sorted(topics.items()):
        kept = []
        for paragraph in re.split(r"\n\s*\n", text):
            is_code = re.search(r"^    ", paragraph, re.MULTILINE) is not None
            lines = [" ".join(line.split()) for line in paragraph.split("\n")]
            lines = [line for line in lines if re.search(r"\w", line) and line[0] not in "+|"]
            plain = ("\n" if is_code else " ").join(lines)
            if plain and plain not in seen:
                seen.add(plain)
                kept.append(plain)
        if kept:
            found[name] = "\n".join(kept)
    return found

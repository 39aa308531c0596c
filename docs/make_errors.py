"""Writes docs/errors.md from the list of causes, so that the two never differ (a test compares them)."""

from __future__ import annotations

from pathlib import Path

from elman.core.causes import GROUPS

PLACE = Path(__file__).with_name("errors.md")

HEAD = """\
# Errors

<!-- made by docs/make_errors.py from elman.core.causes; `make docs` makes it again -->

A failure prints `error: what, where` and `hint: what to do`, and its exit code says of which kind it is
([the command line](cli.md)). Programs read its cause, one of the codes below: with `--json`, the last line of stdout is

```json
{"schema_version": 1, "error": {"code": "bad-utf8", "message": "...", "hint": "...", "exit_code": 65}}
```

From Python it is `error.code` of an `elman.ElmanError`; over HTTP, where a request is refused by a model, the `code` of
the error. A code keeps its name and its meaning; there may be new ones. [Troubleshooting](troubleshooting.md) shows the
most frequent with their messages.
"""


def render() -> str:
    """A table for each group."""
    parts = [HEAD]
    for title, causes in GROUPS.items():
        rows = [f"| `{code}` | {cause.meaning} | {cause.remedy} |" for code, cause in causes.items()]
        parts.append(
            "\n".join([f"## {title}", "", "| code | what happened | what helps |", "|---|---|---|", *rows, ""])
        )
    return "\n".join(parts)


if __name__ == "__main__":
    PLACE.write_text(render(), encoding="utf-8")

"""Writes docs/cli.md from the command line itself, so that the two never differ (a test compares them)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.main import get_command

from elman.cli.app import make_app
from elman.cli.train import describe_choices

PLACE = Path(__file__).with_name("cli.md")

HEAD = """\
# The command line

<!-- made by docs/make_cli.py from the program itself; `make docs` makes it again -->

Results go to stdout, progress and messages to stderr. `--json` prints one JSON object with `schema_version`. `-` is
stdin. The seed is printed with every result. Bars and colour appear only on a terminal, and not with `NO_COLOR`.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed |
| 2 | wrong usage: an unknown verb, flag or setting, or a setting that cannot apply |
| 65 | bad data: broken UTF-8, a malformed line, a damaged model |
| 66 | no such input, or it may not be read |
| 74 | cannot write: no room, no permission, a directory that holds something |
| 75 | busy: another process writes there; try again |
| 130, 143 | stopped by Ctrl-C, by SIGTERM; what was there before is still there |
| 141 | the reader of our output went away |

`elman --install-completion` lets the shell complete verbs, flags, tasks, models, recipes, units and settings.
What `--set` and a recipe can set is in [settings.md](settings.md), and printed by `elman settings`.

A failure prints `error: what, where` and `hint: what to do`; with `--json` also an object with the code of its cause on
stdout ([errors.md](errors.md)). `ELMAN_DEBUG=1` adds the traceback of a bug.
"""


def render() -> str:
    """The whole reference."""
    describe_choices()
    command: Any = get_command(make_app())
    return "\n".join([HEAD, *(_verb(name, verb) for name, verb in command.commands.items())])


def _verb(name: str, verb: Any) -> str:
    summary, _, more = verb.help.partition("\n\n")
    arguments = [parameter for parameter in verb.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in verb.params if parameter.param_type_name == "option"]
    usage = " ".join(
        [f"elman {name}", *map(_usage, arguments), *(_usage(o) for o in options if o.required), "[OPTIONS]"]
    )
    lines = [f"## elman {name}", "", " ".join(summary.split()), "", "```", usage, "```", ""]
    if more:
        lines += [" ".join(more.split()), ""]
    lines += ["| | |", "|---|---|"]
    lines += [f"| `{_names(parameter)}` | {_help(parameter)} |" for parameter in [*arguments, *options]]
    lines += ["", "```console", *(f"$ {command}" for command in verb.epilog.splitlines()), "```"]
    return "\n".join([*lines, ""])


def _usage(parameter: Any) -> str:
    if parameter.param_type_name == "option":
        return f"{max(parameter.opts, key=len)} {parameter.metavar}"
    name = _metavar(parameter)
    name += "..." if parameter.nargs == -1 and not name.endswith("...") else ""
    return name if parameter.required else f"[{name}]"


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return _metavar(parameter)
    names = ", ".join(sorted(parameter.opts, key=len)) + "".join(f" / {name}" for name in parameter.secondary_opts)
    return names if parameter.is_flag or not parameter.metavar else f"{names} {parameter.metavar}"


def _help(parameter: Any) -> str:
    text = (parameter.help or "").replace("|", "\\|")
    default = parameter.default
    is_shown = parameter.show_default is not False and not parameter.required and default not in (None, False, "", [])
    return f"{text} [default: {default}]" if is_shown and "[default" not in text else text


if __name__ == "__main__":
    PLACE.write_text(render(), encoding="utf-8")

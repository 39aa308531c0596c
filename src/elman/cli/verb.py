"""A verb as typer knows it: help without types, and with examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from typer.core import TyperCommand

F = TypeVar("F", bound=Callable[..., int | None])


def examples(*commands: str) -> Callable[[F], F]:
    """Commands that --help shows below a verb's options."""

    def mark(verb: F) -> F:
        verb.examples = commands  # type: ignore[attr-defined]
        return verb

    return mark


class Verb(TyperCommand):
    """A verb whose help says what to give, not of which type of Python it is."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS] DIR [FILE]`"""
        return ["[OPTIONS]", *(usage(one) for one in self.params if one.param_type_name == "argument")]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments by the names they have in the usage; options as they are."""
        rows: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                rows[parameter.param_type_name].append((name_of(parameter), record[1]) if is_argument else record)
        for title, listed in (("Arguments", rows["argument"]), ("Options", rows["option"])):
            if listed:
                with formatter.section(title):
                    formatter.write_dl(listed)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The examples, a line each."""
        with formatter.section("Examples"):
            for command in (self.epilog or "").splitlines():
                formatter.write(f"  {command}\n")


def name_of(argument: Any) -> str:
    """An argument as help calls it."""
    return str(argument.metavar or argument.name.upper())


def usage(argument: Any) -> str:
    """An argument in a line of usage."""
    name = name_of(argument) + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"

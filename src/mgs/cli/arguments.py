"""Command lines from dataclasses: a YAML file first, flags on top, nearest matches for what does not exist.

Built on the library's `HfArgumentParser`. `--help` shows our options; `--help-all` the several hundred of the library.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, NoReturn

import yaml
from transformers import HfArgumentParser, TrainingArguments

from mgs.errors import UserError, unknown
from mgs.training.config import RARE, own_options

ALIASES = {"--out": "--output_dir"}


class Parser(HfArgumentParser):
    """Errors are `UserError`s, and nothing is abbreviated."""

    def __init__(self, types: Sequence[Any], prog: str, summary: str):
        super().__init__(list(types), prog=prog, add_help=False, allow_abbrev=False)
        self.summary = summary
        self.types = types

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see `{self.prog} --help`)")

    def parse(self, argv: Sequence[str], defaults: Sequence[str] = ()) -> tuple[Any, ...]:
        """One instance of each type. Later arguments win: `defaults`, then the YAML file, then flags."""
        flags = [_canonical(argument) for argument in argv]
        if "--help" in flags or "-h" in flags:
            self.show(everything=False)
        if "--help-all" in flags or "--help_all" in flags:
            self.show(everything=True)
        flags, file = _take(flags, "--config")
        arguments = [*defaults, *(self._from_yaml(file) if file else ()), *flags]
        namespace, left = self.parse_known_args(arguments)
        if left:
            names = sorted(self.option_names())
            if left[0].startswith("--"):
                raise (
                    unknown("option", left[0].split("=")[0].lstrip("-"), names)
                    if len(names) < 40
                    else _nearest(left[0], names)
                )
            raise UserError(f"unexpected argument {left[0]!r} (see `{self.prog} --help`)")
        return tuple(self._build(cls, namespace) for cls in self.types)

    def option_names(self) -> set[str]:
        return {f.name for cls in self.types for f in dataclasses.fields(cls) if f.init} | {"out", "config"}

    def _build(self, cls: type, namespace: argparse.Namespace) -> Any:
        values = {f.name: getattr(namespace, f.name) for f in dataclasses.fields(cls) if f.init}
        try:
            with redirect_stderr(io.StringIO()):
                return cls(**values)
        except UserError:
            raise
        except (ValueError, TypeError, ImportError, RuntimeError) as error:
            raise UserError(str(error).strip().splitlines()[0]) from None

    def _from_yaml(self, file: str) -> list[str]:
        """A mapping of options as flags, so that values are read the same way from both."""
        try:
            options = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise UserError(f"cannot read the configuration {file!r}: {str(error).splitlines()[0]}") from None
        if not isinstance(options, dict):
            raise UserError(f"the configuration {file!r} must be a mapping of options to values")
        arguments: list[str] = []
        for name, value in options.items():
            if name not in self.option_names():
                raise _nearest(str(name), sorted(self.option_names()))
            if value is None:
                continue
            values = value if isinstance(value, list) else [value]
            arguments += [_canonical(f"--{name}"), *(_plain(v) for v in values)]
        return arguments

    def show(self, everything: bool) -> NoReturn:
        print(f"usage: {self.prog} [options]\n\n{self.summary}")
        for cls in self.types:
            options = {f.name: f for f in dataclasses.fields(cls) if f.init}
            for heading, names in own_options(cls).items():
                print(f"\n{heading}")
                for name in names:
                    if name in options and (everything or name not in RARE):
                        _show_option(options.pop(name))
            if everything and options:
                print("\nOptions of the library's TrainingArguments.")
                for f in options.values():
                    _show_option(f)
        print("\n  --config FILE              YAML file of these options; flags come on top")
        if not everything and any(issubclass(cls, TrainingArguments) for cls in self.types):
            print("  --help-all                 also the options of the library's TrainingArguments")
        sys.exit(0)


def _show_option(f: dataclasses.Field) -> None:
    default = f.default if f.default is not dataclasses.MISSING else None
    if f.default_factory is not dataclasses.MISSING:
        default = f.default_factory()
    name = "out" if f.name == "output_dir" else f.name
    shown = f" [{default}]" if default not in (None, "") else ""
    help = str(f.metadata.get("help", "")).split("\n")[0]
    print(f"  --{name:<24} {help}{shown}")


def _canonical(argument: str) -> str:
    """`--max-steps` and `--max_steps` are one option; `--out` is short for `--output_dir`."""
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    name = name if name == "--help-all" else "--" + name[2:].replace("-", "_")
    return ALIASES.get(name, name) + equals + value


def _take(flags: list[str], name: str) -> tuple[list[str], str | None]:
    """The flags without `name` and its value."""
    for i, flag in enumerate(flags):
        if flag == name:
            if i + 1 == len(flags):
                raise UserError(f"{name} needs a file")
            return flags[:i] + flags[i + 2 :], flags[i + 1]
        if flag.startswith(name + "="):
            return flags[:i] + flags[i + 1 :], flag.split("=", 1)[1]
    return flags, None


def _nearest(given: str, names: list[str]) -> UserError:
    """As `unknown`, but without listing several hundred names."""
    message = str(unknown("option", given.split("=")[0].lstrip("-"), names))
    return UserError(message.split(" (allowed:")[0].rstrip(":") + " (see --help, or --help-all for all of them)")


def _plain(value: Any) -> str:
    """As it would be written on the command line."""
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)

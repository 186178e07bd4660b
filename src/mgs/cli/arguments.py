"""Command lines from dataclasses: a YAML file first, flags on top, nearest matches for what does not exist.

Built on the library's `HfArgumentParser`. `--help` shows our options; `--help-all` the several hundred of the library.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import os
import re
import reprlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, NoReturn

import yaml
from transformers import HfArgumentParser, TrainingArguments

from mgs.errors import UserError, first_line, unknown
from mgs.training.config import RARE, own_options
from mgs.training.recipes import RECIPES, recipe_options

ALIASES = {"--out": "--output_dir"}
FLAGS_ONLY = ("trust_remote_code",)  # never from a file, which may be someone else's
LARGEST_CONFIGURATION = 1_000_000  # bytes


class Parser(HfArgumentParser):
    """Errors are `UserError`s, and nothing is abbreviated."""

    def __init__(self, types: Sequence[Any], prog: str, summary: str):
        super().__init__(list(types), prog=prog, add_help=False, allow_abbrev=False)
        self.summary = summary
        self.types = types

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see `{self.prog} --help`)")

    def parse(self, argv: Sequence[str], defaults: Sequence[str] = ()) -> tuple[Any, ...]:
        """One instance of each type. Later arguments win: `defaults`, a recipe that the YAML file names, the file, a
        recipe that a flag names, flags."""
        flags = [_canonical(argument) for argument in argv]
        if "--help" in flags or "-h" in flags:
            self.show(everything=False)
        if "--help-all" in flags or "--help_all" in flags:
            self.show(everything=True)
        flags, file = _take(flags, "--config")
        named = self.from_mapping(self._file_options(file, flags)) if file is not None else []
        arguments = [*defaults, *self._from_recipe([*named, *flags]), *named, *flags]
        for argument in arguments:
            _check_text(argument)
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
        names = {f.name for cls in self.types for f in dataclasses.fields(cls) if f.init}
        return names | {"config"} | ({"out"} if "output_dir" in names else set())

    def _build(self, cls: type, namespace: argparse.Namespace) -> Any:
        values = {f.name: getattr(namespace, f.name) for f in dataclasses.fields(cls) if f.init}
        try:
            with redirect_stderr(io.StringIO()):
                return cls(**values)
        except UserError:
            raise
        except (ValueError, TypeError, ImportError, RuntimeError) as error:
            raise UserError(f"these options cannot be used: {first_line(error)}") from None

    def _file_options(self, file: str, flags: Sequence[str]) -> dict[Any, Any]:
        """What a file says. Beside a recipe that a flag names, that is without what this recipe sets and without what
        the file has from its own: a run's `mgs.yaml` says all of it, and nobody chose it apart."""
        options, recipe = read_yaml(file), self._recipe(flags)
        if not recipe:
            return options
        chosen, earlier = recipe_options(recipe), RECIPES.get(str(options.get("recipe")), {})
        return {n: value for n, value in options.items() if n not in chosen and (n, value) not in earlier.items()}

    def _from_recipe(self, given: Sequence[str]) -> list[str]:
        """The options of the recipe that is named, where there is such an option."""
        recipe = self._recipe(given)
        return self.from_mapping(recipe_options(recipe)) if recipe else []

    def _recipe(self, given: Sequence[str]) -> str | None:
        if "recipe" not in self.option_names():
            return None
        named = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        named.add_argument("--recipe", nargs="?")  # without a name it is refused later, with all others
        return named.parse_known_args(list(given))[0].recipe

    def from_mapping(self, options: Mapping[Any, Any]) -> list[str]:
        """As flags, so that values are read the same way from a file and from the command line."""
        fields = {f.name: f for cls in self.types for f in dataclasses.fields(cls)}
        arguments: list[str] = []
        for name, value in options.items():
            if name not in (allowed := self.option_names() - {"config"}):
                raise _nearest(str(name), sorted(allowed))
            option = fields[{"out": "output_dir"}.get(name, name)]
            if name in FLAGS_ONLY and value:
                raise UserError(
                    f"{name} is never taken from a file, which may be someone else's: give the flag --{name}"
                )
            if value is not None:
                arguments += _as_flags(name, value, str(option.type))
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
    if isinstance(default, list):  # as it would be given
        default = " ".join(map(str, default))
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


def _check_text(argument: str) -> None:
    """What could not stand on a command line, but can in a file: no name of a file or of a model has it."""
    try:
        fits = b"\0" not in os.fsencode(argument)
    except UnicodeEncodeError:  # half of a surrogate pair
        fits = False
    if not fits:
        raise UserError(f"{argument!r} is not text: it holds a NUL or half a character")


def _take(flags: list[str], name: str) -> tuple[list[str], str | None]:
    """The flags without `name` and its value."""
    if sum(flag.split("=")[0] == name for flag in flags) > 1:
        raise UserError(f"{name} was given more than once: name one file")
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
    return UserError(message.split(" (allowed:")[0] + " (see --help, or --help-all for all of them)")


def _as_flags(name: str, value: Any, kind: str) -> list[str]:
    """As it would be written on the command line, for an option of this kind."""
    if isinstance(value, dict) and "dict" in kind.lower():
        return [f"--{name}={json.dumps(value, default=str, skipkeys=True)}"]
    values = value if isinstance(value, list) and "list" in kind.lower() else [value]
    plain = [str(v).lower() if isinstance(v, bool) else str(v) for v in values if isinstance(v, (str, int, float))]
    if len(plain) < len(values) or (len(plain) > 1 and any(re.match("-[^0-9.]", v) for v in plain)):
        wanted = "plain values" if values is value else "one plain value"
        raise UserError(f"the option {name!r} takes {wanted}, but the configuration gives it {reprlib.repr(value)}")
    flag = _canonical(f"--{name}")
    return [f"{flag}={plain[0]}"] if len(plain) == 1 else [flag, *plain]


class Loader(yaml.SafeLoader):
    """Plain values only. Aliases are refused too: a few lines of them can stand for more than fits the memory."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not read: write the value out")
        return super().compose_node(parent, index)


def read_yaml(file: str) -> dict[Any, Any]:
    """The mapping in a configuration file."""
    try:
        if (size := Path(file).stat().st_size) > LARGEST_CONFIGURATION:
            raise UserError(f"the configuration {file!r} has {size:,} bytes: no set of options is that large")
        options = yaml.load(Path(file).read_text(encoding="utf-8"), Loader)  # a SafeLoader
    except UserError:
        raise
    except yaml.MarkedYAMLError as error:
        where = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"cannot read the configuration {file!r}: {error.problem}{where}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"cannot read the configuration {file!r}: {first_line(error)}") from None
    except Exception as error:  # a date or a number that is none, a path with a NUL, values nested too deep
        reason = f"{type(error).__name__}, {first_line(error)}"
        raise UserError(f"cannot read the configuration {file!r}: a value in it cannot be read ({reason})") from None
    if not isinstance(options, dict):
        raise UserError(f"the configuration {file!r} must be a mapping of options to values")
    return options

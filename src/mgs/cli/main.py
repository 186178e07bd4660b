"""The command `mgs`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from mgs.errors import UserError, unknown

#: Command → (module, what it is for). Modules are imported when used: `mgs --help` answers at once.
COMMANDS = {
    "demo": ("mgs.cli.demo", "the whole story in minutes: MLE, MGS, MRT and PG on the embedded corpus"),
    "train": ("mgs.cli.train", "train a model: mgs train {mle,mgs,mrt,pg} [options]"),
    "evaluate": ("mgs.cli.evaluate", "decode held-out prefixes and print the table of figures"),
    "generate": ("mgs.cli.generate", "continue prefixes"),
    "reproduce": ("mgs.cli.reproduce", "the runs of a table of the paper, and the table: mgs reproduce NAME [options]"),
    "report": ("mgs.cli.report", "one HTML page about runs: figures, curves, outputs before and after"),
    "bench": ("mgs.cli.bench", "time updates on this machine: candidates one by one, as one batch, decoding alone"),
    "data": ("mgs.cli.data", "show what a file becomes: pairs, lengths, human figures"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. A user's mistake is one sentence on stderr and exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return run(arguments)
    except UserError as error:
        print(f"mgs: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("mgs: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains again at exit
        return 141
    except OSError as error:  # a full disk, a folder that cannot be written, a file where a folder should be
        print(f"mgs: {error.strerror or error}: {error.filename or 'while reading or writing'}", file=sys.stderr)
        return 2


def run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print("usage: mgs COMMAND [options]\n\nTrain sequence models for your cost under your decoder.\n")
        for name, (_, purpose) in COMMANDS.items():
            print(f"  {name:<10} {purpose}")
        print("\n`mgs COMMAND --help` shows a command's options.")
        return 0
    if arguments[0] in ("-V", "--version"):
        import mgs

        print(f"mgs {mgs.__version__}")
        return 0
    if arguments[0] not in COMMANDS:
        raise unknown("command", arguments[0], COMMANDS)
    quiet()
    module = importlib.import_module(COMMANDS[arguments[0]][0])
    getattr(module, arguments[0])(arguments[1:])
    return 0


def quiet() -> None:
    """The libraries' own chatter would bury ours."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()

"""The command `mgs`."""

from __future__ import annotations

import importlib
import os
import pickle
import re
import sys
import warnings
from collections.abc import Sequence

from mgs.errors import UserError, first_line, unknown
from mgs.report.escape import printable, shortened

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
OUT_OF_MEMORY = "out of memory|not enough memory|can't allocate memory"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. A user's mistake is one sentence on stderr and exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return run(arguments)
    except UserError as error:
        return 2 if error.everywhere and os.environ.get("RANK", "0") != "0" else refuse(error)
    except KeyboardInterrupt:
        print("mgs: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains again at exit
        return 141
    except OSError as error:  # a full disk, a folder that cannot be written, a file where a folder should be
        return refuse(f"{error.strerror or error}: {error.filename or 'while reading or writing'}")
    except pickle.UnpicklingError:  # torch reads numbers alone, and advises to read everything: we do not
        return refuse("a file of the checkpoint holds something other than numbers and was not read: start anew")
    except ImportError as error:  # a package that an option needs and that is not installed
        return refuse(first_line(error))
    except (MemoryError, RuntimeError) as error:  # torch has no kind of its own for memory that is not a GPU's
        if not isinstance(error, MemoryError) and not re.search(OUT_OF_MEMORY, str(error)):
            raise
        reason = first_line(error)
        return refuse(f"out of memory ({reason}): use smaller batches, fewer beams or a smaller model")


def refuse(reason: object) -> int:
    """One line on stderr. What it quotes is data, of any length and with any characters."""
    print(f"mgs: {shortened(printable(reason))}", file=sys.stderr)
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
    """The libraries' own chatter would bury ours; a warning is a sentence, not a line of code."""
    from transformers.utils import logging

    warnings.formatwarning = lambda message, *where, **more: f"mgs: {message}\n"

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", module=r"(torch|transformers|accelerate|huggingface_hub|datasets|peft)\b")

"""The two ends of `train_small.sh`: the tokenizer before training, the weights in half precision after it."""

import sys
from pathlib import Path

import torch

from mgs.data import load_lines
from mgs.models import PRESETS, load_model, load_tokenizer, train_tokenizer

EVERY = 10  # of Wikipedia's paragraphs, one in so many shapes the vocabulary beside all of the corpus


def main(arguments: list[str]) -> None:
    if arguments[0] == "--halve":
        source, out = arguments[1:]
        tokenizer = load_tokenizer(source)
        model = load_model(source).to(torch.float16)
        model.config._name_or_path = "small"
        model.save_pretrained(out)
        tokenizer.save_pretrained(out)
    else:
        wikipedia, corpus, out = arguments
        lines = load_lines(corpus, "train") + load_lines(wikipedia, "train", drop_headings=True)[::EVERY]
        train_tokenizer(lines, PRESETS["small"]["vocabulary"]).save_pretrained(out)
    print(*sorted(f"{file.name}: {file.stat().st_size:,} bytes" for file in Path(out).iterdir()), sep="\n")


main(sys.argv[1:])

"""Make IWSLT'14-like training pairs out of other German-English text: lowercased and tokenized as its files are.

    pip install sacremoses
    python scripts/mix_pairs.py DATA OUT

reads DATA/{iwslt14/train-sample,newstest/newstest,multi30k/train}.{de,en}.xz and DATA/tatoeba/deu.txt.xz (English, tab,
German), and writes OUT/train.{de,en}; and OUT/{valid,test}.{de,en}, IWSLT's own, with `&apos;` and the like unescaped.
Pairs of the training files whose German side is in valid or test are left out.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Iterator
from pathlib import Path

from sacremoses import MosesPunctNormalizer, MosesTokenizer
from tqdm import tqdm

from mgs.data.pairs import Pair, read_pairs


def pairs(data: Path, name: str) -> list[Pair]:
    return read_pairs(f"{data}/{name}.de.xz,{data}/{name}.en.xz")


def tokenized(found: list[Pair]) -> Iterator[Pair]:
    tools = [(MosesPunctNormalizer(language), MosesTokenizer(language)) for language in ("de", "en")]
    for pair in tqdm(found, desc="tokenizing", unit="pair"):
        left, right = (
            tokenizer.tokenize(normalizer.normalize(side), return_str=True, escape=False).lower()
            for side, (normalizer, tokenizer) in zip(pair, tools, strict=True)
        )
        yield left, right


def unescaped(found: list[Pair]) -> list[Pair]:
    return [(html.unescape(left), html.unescape(right)) for left, right in found]


def write(out: Path, split: str, found: list[Pair]) -> None:
    for language, side in zip(("de", "en"), zip(*found, strict=True), strict=True):
        (out / f"{split}.{language}").write_text("\n".join(side) + "\n", encoding="utf-8")
    print(f"{split}: {len(found):,} pairs")


def main(data: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    held_out = {split: unescaped(pairs(data, f"iwslt14/{split}")) for split in ("valid", "test")}
    seen = {left for found in held_out.values() for left, _ in found}
    raw = pairs(data, "newstest/newstest") + pairs(data, "multi30k/train")
    raw += read_pairs(str(data / "tatoeba" / "deu.txt.xz"), source=1)
    train = unescaped(pairs(data, "iwslt14/train-sample")) + list(tokenized(raw))
    write(out, "train", [pair for pair in train if pair[0] not in seen])
    for split, found in held_out.items():
        write(out, split, found)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""Subwords for translation: one BPE for both languages, so that names and numbers are spelt alike on both sides.

It works on bytes, so that ⟨unk⟩ cannot happen: any text has an encoding, and decoding gives it back to the letter,
punctuation and spaces included. Each text is read as if a space came before it, which decoding takes off again, so
that a word is the same token at the start of a sentence as inside it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from mgs.errors import UserError

BOS, PAD, END, UNK = SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # numbered 0 to 3, as in fairseq and BART
BYTES = 256
VOCABULARY = 10_000


def train_joint_bpe(
    lines: Iterable[str], vocabulary: int = VOCABULARY, lowercase: bool = False
) -> PreTrainedTokenizerFast:
    """A BPE of `vocabulary` types (fewer where the lines have no more to merge), special tokens counted.

    The result depends on how often each word occurs in `lines` and on nothing else. `lowercase` becomes part of the
    tokenizer and is saved with it. ⟨eos⟩ is not added to what it encodes: that is left to whoever makes examples.
    """
    smallest = len(SPECIAL) + BYTES
    if vocabulary < smallest:
        raise UserError(
            f"a BPE has a type for each byte and {len(SPECIAL)} special ones: "
            f"give a vocabulary of at least {smallest}, not {vocabulary}"
        )
    backend = Tokenizer(models.BPE())
    first = [normalizers.Lowercase()] if lowercase else []
    backend.normalizer = normalizers.Sequence([*first, normalizers.Prepend(" ")])
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(lines, trainer)
    if backend.get_vocab_size() == smallest:
        raise UserError("no text to train a BPE on: the lines hold no two characters in a row")
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=BOS,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNK,
        clean_up_tokenization_spaces=False,
    )

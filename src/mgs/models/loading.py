"""Models and tokenizers by name: the small model of this package, a new one, a folder, a `.gguf` file, the hub."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GPT2Config,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from mgs.data.hub import work_offline_if_unreachable
from mgs.data.sources import OPENERS
from mgs.errors import UserError, first_line, unknown
from mgs.models.adapter import adapted, load_adapter
from mgs.models.translation import TRANSLATION_PRESETS, new_translation_model

SMALL = Path(__file__).parent / "small"  # weights shipped with the package
EOS = "<|endoftext|>"

#: Architectures that `new:NAME` starts from random weights. `vocabulary` is the size of the BPE trained with it.
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 512, "vocabulary": 1024},
    "small": {"n_layer": 4, "n_embd": 256, "n_head": 8, "n_positions": 512, "vocabulary": 6144},
    "gpt2": {"n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocabulary": 50257},
}


def load_model(
    name: str, tokenizer: PreTrainedTokenizerBase | None = None, trust_remote_code: bool = False
) -> PreTrainedModel:
    """A causal or an encoder-decoder model in fp32. `new:PRESET` needs the tokenizer it is made for.

    Weights come from safetensors or .gguf; Python code that comes with a model runs only with `trust_remote_code`.
    """
    if name.startswith("new:"):
        if tokenizer is None:
            raise UserError(f"model {name!r} starts from random weights and needs a tokenizer: name one")
        return new_model(name.removeprefix("new:"), tokenizer)
    if (base := adapted(name)) is not None:
        return load_adapter(name, load_model(base, tokenizer, trust_remote_code))
    path, options = _where(name)
    try:
        safe = _unpacked() if "gguf_file" in options else {"use_safetensors": True}  # nothing that unpickles
        translates = (
            not options and AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code).is_encoder_decoder
        )
        kind: Any = AutoModelForSeq2SeqLM if translates else AutoModelForCausalLM
        model, info = kind.from_pretrained(
            path,
            dtype=torch.float32,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # said below, in a sentence
            **safe,
            **options,
        )
    except Exception as error:  # transformers raises many kinds for a wrong name or a broken folder
        raise _cannot_load("model", name, error) from None
    wrong = sorted({*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])})
    if wrong:  # the library would draw them at random
        raise UserError(
            f"the weights of {name!r} are not those of its config.json: {len(wrong)} parameters are missing or of "
            f"another size, such as {wrong[0]!r}"
        )
    freeze_tables(model)
    return model


def freeze_tables(model: torch.nn.Module) -> None:
    """Sinusoidal positions are a fixed table, which loading makes a parameter like others: they are not trained."""
    for module in model.modules():
        if "Sinusoidal" in type(module).__name__:
            module.requires_grad_(False)


def new_model(preset: str, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """A model of a preset size with random weights (drawn from torch's global generator)."""
    if preset in TRANSLATION_PRESETS:
        return new_translation_model(preset, tokenizer)
    if preset not in PRESETS:
        raise unknown("preset", preset, {**PRESETS, **TRANSLATION_PRESETS})
    sizes = {key: value for key, value in PRESETS[preset].items() if key != "vocabulary"}
    eos = tokenizer.eos_token_id
    config = GPT2Config(vocab_size=len(tokenizer), bos_token_id=eos, eos_token_id=eos, pad_token_id=eos, **sizes)
    return AutoModelForCausalLM.from_config(config)


def load_tokenizer(name: str, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer of a model, or one in a folder; also GPT-2's own `encoder.json` and `vocab.bpe`."""
    base = adapted(name)
    if base is not None and not (Path(name) / "tokenizer_config.json").exists():
        name = base
    try:
        tokenizer: PreTrainedTokenizerBase | None = _released_bpe(Path(name))
        if tokenizer is None:
            path, options = _where(name)
            tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code, **options)
            tokenizer("tried once")  # some broken ones fail only when they are used
            if len(tokenizer) <= len({*tokenizer.all_special_ids}):  # the library makes one of nothing
                raise UserError(f"there is no tokenizer in {name!r}: name one with --tokenizer")
            if "gguf_file" in options:
                _end_as_in(Path(name), tokenizer)
    except UserError:
        raise
    except Exception as error:
        raise _cannot_load("tokenizer", name, error) from None
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def train_tokenizer(lines: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE of `vocabulary` types, in the manner of GPT-2's."""
    from tokenizers import ByteLevelBPETokenizer

    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(
        (" " + line for line in lines), vocab_size=vocabulary, special_tokens=[EOS], show_progress=False
    )
    return _gpt2_tokenizer(bpe._tokenizer)


def window(model: PreTrainedModel) -> int | None:
    """The longest sequence the model takes, if it says so."""
    text_config = model.config.get_text_config()
    length = getattr(text_config, "max_position_embeddings", None)
    return int(length) if length else None


def vocabulary(model: PreTrainedModel) -> int:
    """How many types of token the model knows."""
    return int(model.get_input_embeddings().weight.shape[0])  # type: ignore[index]


def check_tokens(model: PreTrainedModel, rows: Iterable[Sequence[int]]) -> None:
    """Tokens that the model does not know would fail deep inside it."""
    highest, known = max((max(row) for row in rows if row), default=0), vocabulary(model)
    if highest >= known:
        raise UserError(
            f"the tokenizer gives token number {highest}, but the model knows {known} types of token only: they do not "
            "belong together (name the tokenizer that the model was trained with)"
        )


def searched_parameters(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """What training may change: `requires_grad` decides. A tied weight appears once."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _where(name: str) -> tuple[str, dict[str, str]]:
    """The path or hub name `from_pretrained` wants, and its options."""
    path = Path(name)
    if name == "small":
        if not (SMALL / "model.safetensors").exists():
            raise UserError(f"the small model is not part of this installation ({SMALL} is empty): reinstall mgs")
        return str(SMALL), {}
    if path.suffix == ".gguf":
        if not path.is_file():
            raise UserError(f"no such model file: {name!r}")
        return str(path.parent), {"gguf_file": path.name}
    if name.startswith((".", "/", "~")) and not path.is_dir():
        raise UserError(f"no such model folder: {name!r}")
    if not path.is_dir():
        work_offline_if_unreachable()
    return name, {}


def _unpacked() -> dict[str, Any]:
    """For a .gguf file: plain weights, that can be trained. Newer versions of the library would keep its blocks where
    they can, and take the model for a quantized one either way."""
    try:
        from transformers.utils.quantization_config import GgufConfig
    except ImportError:
        return {}
    return {"quantization_config": GgufConfig(dequantize=True)}


def _end_as_in(file: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """⟨eos⟩ as a .gguf file says: some versions of the library take another token for it."""
    from gguf import GGUFReader

    field = GGUFReader(file).fields.get("tokenizer.ggml.eos_token_id")
    if field is not None:
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(int(field.parts[field.data[0]][0]))


def _cannot_load(kind: str, name: str, error: Exception) -> UserError:
    presets = ", ".join(f"new:{preset}" for preset in PRESETS)
    near = difflib.get_close_matches(name, ["small", *(f"new:{preset}" for preset in PRESETS)], n=1, cutoff=0.7)
    hint = f"did you mean {near[0]!r}? " if near else ""
    allowed = f"small, {presets}, a folder, a .gguf file or a hub name"
    return UserError(f"cannot load {kind} {name!r}: {hint}{first_line(error)} (allowed: {allowed})")


def _released_bpe(folder: Path) -> PreTrainedTokenizerFast | None:
    """GPT-2's tokenizer as it was first released, plain or compressed."""
    files = [_plain_or_compressed(folder / name) for name in ("encoder.json", "vocab.bpe")]
    if None in files:
        return None
    from tokenizers import ByteLevelBPETokenizer

    encoder, bpe = (OPENERS.get(file.suffix, open)(file, "rb").read().decode("utf-8") for file in files if file)
    merges = [tuple(line.split()) for line in bpe.splitlines()[1:] if line]
    return _gpt2_tokenizer(ByteLevelBPETokenizer(json.loads(encoder), merges)._tokenizer)


def _plain_or_compressed(path: Path) -> Path | None:
    found = (path.with_name(path.name + suffix) for suffix in ("", *OPENERS))
    return next((file for file in found if file.is_file()), None)


def _gpt2_tokenizer(backend: Any) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=EOS,
        bos_token=EOS,
        unk_token=EOS,
        pad_token=EOS,
        clean_up_tokenization_spaces=False,
    )

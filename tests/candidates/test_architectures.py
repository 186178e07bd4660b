"""Candidates of the library's architectures, at their smallest: one batch, and what copies decode."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

from mgs.candidates import Candidates
from mgs.decoding import Decoder
from mgs.models import freeze_tables

TOKENS = {"vocab_size": 24, "bos_token_id": 22, "eos_token_id": 0, "pad_token_id": 23}
COMMON = {
    **{"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"max_position_embeddings": 64, "use_cache": True},
}
SHARED_HEADS, NOTHING = {"num_key_value_heads": 2, "head_dim": 4}, {}
TWO_SIDES = {
    **{"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 64},
    **{"decoder_start_token_id": 23, "forced_eos_token_id": None},
}
RELATIVE = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 23}

CAUSAL = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3"), SHARED_HEADS),
    **dict.fromkeys(("olmo2", "smollm3", "granite", "cohere", "stablelm"), SHARED_HEADS),
    **dict.fromkeys(("phi", "gpt_neox", "falcon", "bloom"), NOTHING),
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 4},
    "gptj": {"n_embd": 16, "n_layer": 2, "n_head": 4, "rotary_dim": 2},
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "opt": {"ffn_dim": 24, "word_embed_proj_dim": 16},
    "xglm": {"d_model": 16, "ffn_dim": 24, "num_layers": 2, "attention_heads": 4},
    "mamba": {"state_size": 4},
}
TRANSLATING = {
    **dict.fromkeys(("bart", "marian", "pegasus", "mbart", "m2m_100", "blenderbot"), TWO_SIDES),
    **dict.fromkeys(("t5", "mt5"), RELATIVE),
}


def made(kind):
    causal = kind in CAUSAL
    sizes = {**COMMON, **CAUSAL[kind]} if causal else TRANSLATING[kind]
    config = AutoConfig.for_model(kind, **sizes, **TOKENS)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        model = (AutoModelForCausalLM if causal else AutoModelForSeq2SeqLM).from_config(config).eval()
        for parameter in model.parameters():
            parameter.add_(0.35 * torch.randn_like(parameter))
    freeze_tables(model)
    return model


@pytest.mark.parametrize("decoder", [Decoder(sample=True), Decoder(beams=2)], ids=str)
@pytest.mark.parametrize("kind", [*CAUSAL, *TRANSLATING])
def test_one_batch_decodes_what_copies_decode(
    kind, decoder, make_proposal, make_task, batch_of, prefixes, one_copy_each
):
    model = made(kind)
    proposal, candidates = make_proposal(model, num=2), Candidates(make_task(decoder, max_new_tokens=6))
    found = candidates.decode(model, proposal, [0, 1, None], batch_of(prefixes))
    assert found == one_copy_each(model, proposal, prefixes, decoder, 6)
    assert candidates._batches(model)  # it was one batch
    assert len({tuple(rows) for rows in found.values()}) > 1

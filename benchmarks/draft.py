"""Whether the base model's output, as a draft for its candidates, makes decoding them faster.

    python benchmarks/draft.py

Candidates differ little from θ, so much of what θ decodes is what they decode. One parallel pass of every candidate
over θ's output checks it up to the first token that changes, and decoding goes on from there: exact, in fewer steps.
Measured beside the plain loop, on the demo's candidates and on the paper's noise; outputs are compared.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from mgs.candidates import Candidates, Task
from mgs.candidates.forms import stand_ins
from mgs.candidates.groups import Groups
from mgs.candidates.swap import swapped, watched
from mgs.costs import Cost
from mgs.data import load_completions
from mgs.decoding import Decoder
from mgs.decoding.cache import growing_cache
from mgs.decoding.loop import ended_at
from mgs.methods.mle import mle_gradient
from mgs.models import load_model, load_tokenizer, searched_parameters
from mgs.models.likelihood import padded
from mgs.search import Proposal, ProposalForm
from mgs.search.directions import clipped
from mgs.types import Batch

ROWS, CAP = 48, 100


@torch.no_grad()
def decode_from_draft(
    model: nn.Module, prefixes: list[tuple[int, ...]], drafts: list[tuple[int, ...]], eos: int, groups: Groups
) -> list[tuple[int, ...]]:
    """Greedy search that takes over as much of each draft as it would have decoded itself. Prefixes of one length."""
    start = len(prefixes[0])
    ids = padded([[*x, *y] for x, y in zip(prefixes, drafts, strict=True)], eos, "cpu")
    lengths = torch.tensor([len(draft) for draft in drafts])
    cache = growing_cache(model.config)
    best = model(input_ids=ids[:, :-1], past_key_values=cache, use_cache=True).logits[:, start - 1 :].argmax(dim=-1)
    agreed = (best == ids[:, start:]) & (torch.arange(best.shape[1]) < lengths[:, None])
    taken = agreed.long().cumprod(dim=1).sum(dim=1)  # tokens of the draft that stand
    out = torch.full((len(prefixes), CAP), eos)
    for row, num in enumerate(taken.tolist()):
        out[row, :num] = ids[row, start : start + num]
    going = [row for row, num in enumerate(taken.tolist()) if num < CAP and (not num or out[row, num - 1] != eos)]
    rows = torch.tensor(going)
    columns = torch.arange(ids.shape[1] - 1)
    place = taken[rows]
    attention = (columns < start + place[:, None]).long()
    tokens = best[rows, place]
    cache.batch_select_indices(rows)
    groups.keep(rows)
    while len(rows):
        out[rows, place] = tokens
        place += 1
        kept = ((tokens != eos) & (place < CAP)).nonzero().squeeze(1)
        if len(kept) < len(rows):
            rows, place, tokens, attention = rows[kept], place[kept], tokens[kept], attention[kept]
            cache.batch_select_indices(kept)
            groups.keep(kept)
            if not len(rows):
                break
        attention = torch.cat([attention, attention.new_ones(len(rows), 1)], dim=1)
        positions: Tensor = (start + place - 1)[:, None]
        tokens = model(
            input_ids=tokens[:, None], attention_mask=attention, position_ids=positions, past_key_values=cache,
            use_cache=True,
        ).logits[:, -1].argmax(dim=-1)  # fmt: skip
    return [ended_at(row, eos) for row in out.tolist()]


def main() -> None:
    tokenizer, model = load_tokenizer("small"), load_model("small").eval()
    data = load_completions("docstrings", tokenizer, "train", max_examples=240, max_length=512, min_length=42)
    batch, eos = Batch(data.examples[:ROWS]), tokenizer.eos_token_id
    by_length = sorted(data.examples, key=lambda example: len(example.target))
    gradients = []
    for j in range(6):
        gradient, _ = mle_gradient(model, Batch(by_length[j * 40 : (j + 1) * 40]))
        gradients.append(clipped({name: -tensor for name, tensor in gradient.items()}, 1.0))
    engine = Candidates(Task(tokenizer, Decoder(), Cost.of("edit"), CAP))
    for label, form, centres in (
        ("the demo's candidates", ProposalForm(noise=0.0, lengths=(0.25, 0.5), mix=0.08), gradients),
        ("the paper's noise, dense", ProposalForm(), gradients[-1:]),
    ):
        proposal = Proposal(form, centres, 13, 0, 0)
        base = engine.decode(model, proposal, [None], batch)[None]
        began = time.perf_counter()
        plain = engine.decode(model, proposal, range(13), batch)
        middle = time.perf_counter()
        groups = Groups(13)
        groups.start(13 * ROWS)
        ins = stand_ins(searched_parameters(model), proposal, range(13), groups, factored=False)
        with swapped(model, ins), watched(model, groups):
            rows = decode_from_draft(model, batch.prefixes * 13, base * 13, eos, groups)
        end = time.perf_counter()
        same = sum(rows[k * ROWS + i] == plain[k][i] for k in range(13) for i in range(ROWS))
        print(
            f"{label}: plain {middle - began:.1f} s, from a draft {end - middle:.1f} s: "
            f"{(middle - began) / (end - middle):.2f}×; {same} of {13 * ROWS} rows the same"
        )


main()

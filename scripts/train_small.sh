#!/usr/bin/env bash
# Makes the small model that ships with the package (src/mgs/models/small): a GPT-2 with 4.9 M parameters, trained by
# maximum likelihood on English Wikipedia paragraphs, then on the longer paragraphs of the embedded corpus (at least
# 42 tokens: short ones teach it to stop, and there would be little to cure), and stored in half precision.
#
#   scripts/train_small.sh WIKIPEDIA [OUT] [CORPUS]
#
# WIKIPEDIA is a text file of paragraphs, one a line (plain, .xz or .gz). A few minutes on one GPU.
set -euo pipefail
wikipedia=${1:?usage: scripts/train_small.sh WIKIPEDIA [OUT] [CORPUS]}
out=${2:-runs/small}
corpus=${3:-docstrings}
python=${PYTHON:-python}

$python scripts/small_tokenizer.py "$wikipedia" "$corpus" "$out/tokenizer"
$python -m mgs train mle --model new:small --tokenizer "$out/tokenizer" --data "$wikipedia" --drop_headings \
    --loss_on_prefix --batch_tokens 65536 --by_length --max_steps "${STEPS:-3000}" --learning_rate 3e-3 \
    --lr_scheduler_type cosine --warmup_steps 200 --adam_beta2 0.98 --bf16 "${BF16:-true}" --logging_steps 100 \
    --eval_steps 1000 --save_steps 1000 --report_to none --seed 0 --out "$out/wikipedia"
$python scripts/small_tokenizer.py --halve "$out/wikipedia" "$out/halved"
$python -m mgs train mle --model "$out/halved" --data "$corpus" --min_length 42 \
    --loss_on_prefix --batch_tokens 16384 --by_length --max_steps "${FINE_STEPS:-400}" --learning_rate 1e-3 \
    --lr_scheduler_type linear --warmup_steps 50 --adam_beta2 0.98 --bf16 "${BF16:-true}" --logging_steps 50 \
    --eval_strategy no --save_strategy no --report_to none --seed 0 --out "$out/final"
$python scripts/small_tokenizer.py --halve "$out/final" "$out/package"

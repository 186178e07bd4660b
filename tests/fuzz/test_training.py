"""Real updates with numbers that nobody would choose and with the library's rarer options; and checkpoints, which no
mistake costs."""

import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mgs.cli.main import main
from mgs.cli.train import METHODS
from mgs.training.ranges import RANGES

fuzz = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))

RUN = "--data few.txt --eval_data few.txt --out run --context 3 --batch_tokens 60 --max_steps 1 --eval_examples 2"
RUN += " --eval_max_new_tokens 2 --max_new_tokens 3 --report_to none --disable_tqdm true --use_cpu true"
NUMBERS = ["-1", "0", "1", "3", "1e-30", "0.5", "1e30", "nan", "inf", "-inf", "1e9", "4294967296"]
RARE = """
decoder sample,temperature=1e-30 | decoder sample,temperature=1e30 | decoder sample,top_k=1 | decoder beam-2
decoder sample,top_p=1e-30 | optim nonsense | optim sgd | optim adafactor | optim galore_adamw | optim adamw_bnb_8bit
optim lomo | optim_args nonsense | lr_scheduler_type polynomial | lr_scheduler_type reduce_lr_on_plateau
lr_scheduler_type cosine_with_min_lr | lr_scheduler_type warmup_stable_decay | lr_scheduler_kwargs nonsense
report_to wandb | report_to nonsense | deepspeed nowhere.json | fsdp full_shard | torch_compile maybe | bf16 true
fp16 true | eval_strategy no | eval_strategy epoch | save_strategy best | save_strategy no | best_by nonsense
best_by bleu | resume_from_checkpoint nowhere | gradient_checkpointing true | auto_find_batch_size true
accelerator_config nowhere.json | accelerator_config { | use_liger_kernel true | parallelism_config x | run_name \x1b
log_level nonsense | debug x | eval_on_start true | logging_nan_inf_filter false | eval_delay nan
neftune_noise_alpha 1 | max_steps -1
"""
rare = [
    [f"--{option.split()[0]}", option.split()[1]] for line in RARE.split("\n") if line for option in line.split(" | ")
]


@pytest.fixture(scope="session")
def few(sentences):
    return {"few.txt": "\n".join(sentences[:12]).encode()}


@pytest.mark.parametrize("method", METHODS)
def test_one_update(judge, words, few, method):
    known = [name for name in RANGES if name in METHODS[method][0].__dataclass_fields__]
    number = st.tuples(st.sampled_from(known), st.sampled_from(NUMBERS)).map(lambda pair: ["--{}={}".format(*pair)])

    @settings(fuzz, max_examples=12)
    @given(number | st.sampled_from(rare))
    def cases(argv):
        judge(*words(f"train {method} --model causal {RUN}"), *argv, files=few)

    cases()


@pytest.fixture(scope="session")
def finished(words, few):
    """The files of a run that has ended, with its checkpoint."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("few.txt").write_bytes(few["few.txt"])
        assert main([str(word) for word in words(f"train mgs --model causal {RUN}")]) == 0
        files = {str(path): path.read_bytes() for path in Path(".").rglob("*") if path.is_file()}
    assert "run/checkpoint-1/model.safetensors" in files
    return lambda: files


WRONG = [
    "--seed -1",
    "--cost nowhere",
    "--cost nan.py:cost",
    "--model nowhere",
    "--data nowhere.txt",
    "--noise nan",
    "-x",
]
WRONG += [
    "--config few.txt",
    "--decoder beam-0",
    "--temperature hot",
    "--tokenizer small",
    "--optim lomo",
    "--context 99",
]


@settings(fuzz, max_examples=40)
@given(wrong=st.sampled_from(WRONG), how=st.sampled_from(["", "--resume", "--overwrite"]))
def test_no_mistake_costs_a_checkpoint(judge, no_training, words, finished, wrong, how):
    """Whatever is wrong with the next command in the folder of a run, its files stay as they are."""
    files = finished() | {"nan.py": b"def cost(h, r): return float('nan')\n"}
    judge(*words(f"train mgs --model causal {RUN} {how} {wrong}"), files=files)

"""The command under `torchrun` and `accelerate launch`: one process or two, the same weights; only the first speaks."""

import os
import subprocess
import sys

import pytest

OPTIONS = (
    "--model new:tiny --data text.txt --context 3 --batch_tokens 100 --max_new_tokens 8 --max_steps 2 --eval_steps 2 "
    "--eval_examples 2 --eval_max_new_tokens 8 --learning_rate 0.01 --num_candidates 3 --report_to none"
)
LAUNCHERS = {
    "plain": [],
    "torchrun": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    "accelerate": ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2", "--num_machines", "1"],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, sentences):
    folder = tmp_path_factory.mktemp("launched")
    (folder / "text.txt").write_text("\n".join(sentences[::9]) + "\n")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    def run(name):
        argv = [sys.executable, *LAUNCHERS[name], "-m", "mgs", "train", "mgs", *OPTIONS.split(), "--out", name]
        done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return folder / name, done.stdout

    return {name: run(name) for name in LAUNCHERS}


@pytest.mark.parametrize("name", ["torchrun", "accelerate"])
def test_launched_in_two_processes_a_run_ends_with_the_same_weights(runs, name):
    assert (runs["plain"][0] / "model.safetensors").read_bytes() == (runs[name][0] / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", LAUNCHERS)
def test_only_the_first_process_speaks(runs, name):
    assert runs[name][1].count("the final model") == 1
    assert runs[name][1].count("model, tokenizer and logs") == 1

"""Runs of seconds: a one-layer model over letters, a few dozen short lines, a few updates."""

import json
import multiprocessing
import os
import random
import socket

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from mgs.training import (
    MGSConfig,
    MGSTrainer,
    MLEConfig,
    MLETrainer,
    MRTConfig,
    MRTTrainer,
    PGConfig,
    PGTrainer,
)

TRAINERS = {
    "mle": (MLETrainer, MLEConfig),
    "mgs": (MGSTrainer, MGSConfig),
    "mrt": (MRTTrainer, MRTConfig),
    "pg": (PGTrainer, PGConfig),
}


@pytest.fixture(scope="session")
def letters():
    """Lines of four to nine letters."""
    chance = random.Random(0)
    return [" ".join(chance.choices("abcdefg", k=chance.randint(4, 9))) for _ in range(60)]


@pytest.fixture
def make_model(word_tokenizer):
    """A GPT-2 over the shared tokenizer's words, always with the same weights."""

    def make(dropout=0.1, seed=0):
        config = GPT2Config(
            vocab_size=len(word_tokenizer),
            n_positions=32,
            n_embd=16,
            n_layer=1,
            n_head=2,
            initializer_range=0.3,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return GPT2LMHeadModel(config)

    return make


@pytest.fixture
def make_trainer(word_tokenizer, letters, make_model):
    """A trainer of a method, ready to go; options override the small settings."""

    def make(
        method,
        folder,
        cost="edit",
        model=None,
        train=None,
        held_out=None,
        callbacks=(),
        tokenizer=None,
        args=None,
        **options,
    ):
        trainer_type, config_type = TRAINERS[method]
        settings = {
            "max_steps": 4,
            "batch_tokens": 40,
            "context": 2,
            "max_new_tokens": 6,
            "eval_max_new_tokens": 8,
            "learning_rate": 0.01,
            "report_to": "none",
            "disable_tqdm": True,
            "use_cpu": True,
        } | options
        return trainer_type(
            model if model is not None else make_model(),
            *([] if method == "mle" else [cost]),
            args or config_type(output_dir=str(folder), **settings),
            train if train is not None else letters[:50],
            eval_dataset=held_out,
            processing_class=tokenizer or word_tokenizer,
            callbacks=list(callbacks),
        )

    return make


@pytest.fixture
def entries():
    """The lines of a run's log, of updates or of evaluations."""

    def read(folder, evaluations=False):
        found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return [entry for entry in found if ("eval_edit" in entry) == evaluations]

    return read


@pytest.fixture
def assert_same_weights():
    """Bit for bit."""

    def check(one, other):
        ours, theirs = one.state_dict(), other.state_dict()
        assert ours.keys() == theirs.keys()
        assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []

    return check


@pytest.fixture
def launch():
    """Start a function in processes of its own, as many as asked for and connected like those of `torchrun`; each is a
    copy of this one, so that nothing has to be imported again."""
    started = []

    def start(target, num=1):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]

        def run(rank):
            if num > 1:
                where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": num, "LOCAL_WORLD_SIZE": num}
                os.environ |= {name: str(value) for name, value in {**where, "RANK": rank, "LOCAL_RANK": rank}.items()}
            target()

        processes = [multiprocessing.get_context("fork").Process(target=run, args=(rank,)) for rank in range(num)]
        for process in processes:
            process.start()
        started.extend(processes)
        return processes

    yield start
    for process in started:
        if process.is_alive():
            process.kill()
            process.join()


@pytest.fixture
def finish(launch):
    """Start a function as `launch` does, and wait for it; the exit codes must be those of success."""

    def wait(target, num=1):
        processes = launch(target, num)
        for process in processes:
            process.join(60)
        assert [process.exitcode for process in processes] == [0] * num

    return wait

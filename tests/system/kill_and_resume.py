"""Kills real runs (`kill -9`) at random moments, resumes them, and compares them with runs that were never killed.

    python tests/system/kill_and_resume.py [--kills 3] [--seed 0] [--folder FOLDER]

For MLE, MGS, MRT and PG, in one process and in two under `torchrun`, each killed `--kills` times; and for a rank that
dies under `torchrun --max-restarts`, which comes back by itself. Weights and logs must be the same to the last bit.
Takes about six minutes on two cores; not a test that pytest collects.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from mgs.training.checkpoints import checkpoints, damage

OPTIONS = (
    "--model new:tiny --data text.txt --context 3 --batch_tokens 200 --max_new_tokens 12 --max_steps 12 --save_steps 2 "
    "--eval_steps 4 --eval_examples 4 --eval_max_new_tokens 12 --save_total_limit 1 --learning_rate 0.003 "
    "--gradient_accumulation_steps 2 --report_to none --disable_tqdm true --use_cpu true --resume"
)
LINES = 12 * 2 + 3  # of the log of a whole run: two batches an update, three evaluations
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def command(method: str, num: int, out: Path, restarts: int = 0) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num)]
    launcher += ["--max-restarts", str(restarts)]
    train = ["-m", "mgs", "train", method, *OPTIONS.split(), "--out", str(out)]
    return [sys.executable, *(launcher if num > 1 else []), *train]


def start(argv: list[str], folder: Path) -> subprocess.Popen:
    """In a session of its own, so that all its processes can be killed together."""
    log = (folder / "output.txt").open("a")
    return subprocess.Popen(argv, cwd=folder, env=ENVIRONMENT, stdout=log, stderr=log, start_new_session=True)


def workers(process: subprocess.Popen) -> list[psutil.Process]:
    """The ranks, which are the launcher's children; or the process itself."""
    children = psutil.Process(process.pid).children()
    return [child for child in children if "mgs" in " ".join(child.cmdline())] or [psutil.Process(process.pid)]


def num_lines(out: Path) -> int:
    log = out / "metrics.jsonl"
    return log.read_text().count("\n") if log.exists() else 0


def until(lines: int, process: subprocess.Popen, out: Path) -> None:
    """Waits until the run's log is so long (again: a resumed run cuts it first), or the run is done."""
    log = out / "metrics.jsonl"
    before = log.stat().st_mtime_ns if log.exists() else 0
    while process.poll() is None and not (log.exists() and log.stat().st_mtime_ns > before):
        time.sleep(0.01)
    while process.poll() is None and num_lines(out) < lines:
        time.sleep(0.002)


def kill(process: subprocess.Popen, chance: random.Random) -> None:
    """One rank, and soon after the rest."""
    if process.poll() is None:
        victim = chance.choice(workers(process))
        victim.kill()
        time.sleep(chance.choice([0.0, 0.5]))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def outcome(out: Path) -> tuple[bytes, str]:
    assert not [path for path in checkpoints(out) if damage(path)], "a checkpoint is damaged"
    return (out / "model.safetensors").read_bytes(), (out / "metrics.jsonl").read_text()


def finish(argv: list[str], folder: Path) -> float:
    began = time.monotonic()
    process = start(argv, folder)
    if process.wait() != 0:
        raise SystemExit(f"{' '.join(argv)} ended with {process.returncode}: see {folder / 'output.txt'}")
    return time.monotonic() - began


def killed_and_resumed(folder: Path, method: str, num: int, kills: int, chance: random.Random) -> list[str]:
    """Where the kills struck, in words; a + where they left something half written."""
    out, struck = folder / f"{method}{num}-killed", []
    for i in range(kills):
        process = start(command(method, num, out), folder)
        if i % 4 == 3:
            time.sleep(chance.uniform(0.5, 6))  # also while it starts
        else:
            until(chance.randint(LINES * i // kills, LINES * (i + 1) // kills), process, out)
            time.sleep(chance.uniform(0, 0.1))
        done = process.poll() is not None
        kill(process, chance)
        half = "+" if list(out.glob(".writing-*")) + list(out.glob(".old-*")) else ""
        struck.append("after its end" if done else f"{num_lines(out)} lines{half}")
    finish(command(method, num, out), folder)
    return struck


def a_rank_comes_back(folder: Path, method: str, chance: random.Random) -> int:
    """How often a rank was killed in a run that was started once."""
    out = folder / f"{method}2-restarted"
    process = start(command(method, 2, out, restarts=3), folder)
    for _ in range(2):
        until(chance.randint(1, LINES - 8), process, out)
        chance.choice(workers(process)).kill()
    if process.wait() != 0:
        raise SystemExit(f"the run whose rank was killed ended with {process.returncode}: see {folder / 'output.txt'}")
    return 2


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    words = (("the cat", "a small dog", "our teacher"), ("sat on", "painted", "walked around"))
    lines = [" ".join(parts) + "." for parts in itertools.product(*words, ("the red mat", "an empty house", "it"))]
    (folder / "text.txt").write_text("\n".join(lines * 4) + "\n")
    chance, total, wrong = random.Random(options.seed), 0, 0
    for method, num in itertools.product(("mgs", "mle", "mrt", "pg"), (1, 2)):
        seconds = finish(command(method, num, folder / f"{method}{num}"), folder)
        struck = killed_and_resumed(folder, method, num, options.kills, chance)
        same = outcome(folder / f"{method}{num}") == outcome(folder / f"{method}{num}-killed")
        total, wrong = total + len(struck), wrong + (not same)
        ended = "same" if same else "DIFFERENT"
        print(f"{method} x{num} ({seconds:.0f} s): killed at {', '.join(struck)}: {ended}")
    for method in ("mgs", "pg"):
        times = a_rank_comes_back(folder, method, chance)
        same = outcome(folder / f"{method}2") == outcome(folder / f"{method}2-restarted")
        total, wrong = total + times, wrong + (not same)
        print(f"{method} x2, a rank killed {times} times and restarted: {'same' if same else 'DIFFERENT'}")
    print(f"{total} kills, {wrong} runs that ended otherwise than those never killed")
    return min(1, wrong)


if __name__ == "__main__":
    sys.exit(main())

"""Kernels where there is no GPU: in Triton's interpreter, if Triton is installed."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from mgs import kernels


def test_a_device_that_is_no_gpu_does_not_run_them():
    assert not kernels.usable(torch.device("cpu"))
    assert not kernels.usable(torch.device("meta"))


def test_a_gpu_runs_them_where_triton_is_installed(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    for installed in (True, False):
        monkeypatch.setattr(kernels, "_has_triton", lambda installed=installed: installed)
        assert kernels.usable(torch.device("cuda")) == installed


@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU runs the kernels themselves")
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernels_mean_what_they_should_in_the_interpreter():
    """In a process of its own: the interpreter must be chosen before anything imports Triton, and libraries do."""
    tests = Path(__file__).with_name("test_kernels.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--noconftest", "-p", "no:cacheprovider", "-rs", str(tests)],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert "SKIPPED" not in done.stdout

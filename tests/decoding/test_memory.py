from types import SimpleNamespace

import psutil
import pytest
import torch

from mgs.decoding import memory


@pytest.fixture
def shared(monkeypatch):
    monkeypatch.setattr(memory, "processes", 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda *limit: memory.share_memory.limits.append(limit)
    )
    monkeypatch.setattr(memory.share_memory, "limits", [], raising=False)
    return memory.share_memory


def test_processes_that_share_a_machine_take_their_part_of_its_memory(shared, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    assert memory.free_memory(torch.device("cpu")) == 1000
    shared(4)
    assert memory.free_memory(torch.device("cpu")) == 250
    assert shared.limits == [(memory.USABLE / 4, 0), (memory.USABLE / 4, 1)]  # of each GPU
    shared(1)
    assert shared.limits[2:] == [(1.0, 0), (1.0, 1)]


def test_a_part_of_a_gpu_is_counted_from_all_of_it_not_from_what_others_have_left(shared, monkeypatch):
    """Two processes that both see an empty GPU must not both take it."""
    figures = {"mem_get_info": (900, 1000), "memory_allocated": 100, "memory_reserved": 150}
    for name, value in figures.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    gpu = torch.device("cuda")
    assert memory.free_memory(gpu) == 850  # 950 may be used, 100 are
    shared(4)
    assert memory.free_memory(gpu) == 137
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10, 1000))
    assert memory.free_memory(gpu) == 60  # what is cached can be used again

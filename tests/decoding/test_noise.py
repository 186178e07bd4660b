import math

import pytest
import torch

from mgs.decoding import gumbel, row_keys

EULER = 0.5772156649015329


def test_the_noise_is_a_function_of_key_position_and_token():
    keys = row_keys(range(4), 7, 3)
    assert torch.equal(gumbel(keys, 5, 100), gumbel(row_keys(range(4), 7, 3), 5, 100))
    assert torch.equal(gumbel(keys, 5, 100)[:, :40], gumbel(keys, 5, 40))


@pytest.mark.parametrize("position", [0, 1, 499, 2**40])
def test_a_position_may_be_a_tensor(position):
    """A captured step counts positions on the device, where the product with the constant wraps."""
    keys = row_keys(range(4), 7, 3)
    assert torch.equal(gumbel(keys, torch.tensor(position), 100), gumbel(keys, position, 100))


def test_the_noise_of_a_row_does_not_depend_on_its_batch():
    keys = row_keys(range(6), 1)
    together = gumbel(keys, 2, 50)
    assert torch.equal(gumbel(keys[4:5], 2, 50), together[4:5])
    assert torch.equal(gumbel(keys[[5, 0, 3]], 2, 50), together[[5, 0, 3]])


def test_keys_differ_by_row_seed_and_step():
    keys = torch.cat([row_keys(range(100), seed, step) for seed in range(5) for step in range(5)])
    assert len(set(keys.tolist())) == 2500
    assert not torch.equal(row_keys(range(3), 1, 23), row_keys(range(3), 12, 3))


def test_noise_never_changes_between_versions():
    """Pinned: a resumed run must draw what the run before it would have drawn."""
    assert row_keys([0, 1], 0).tolist() == PINNED_KEYS
    assert gumbel(torch.tensor([0, 1, -5]), 3, 2).flatten().tolist() == pytest.approx(PINNED_NOISE, abs=1e-12)


PINNED_KEYS = [2700352082440137613, -1312981370292843526]
PINNED_NOISE = [
    -0.414168728344438,
    -0.2841092654756371,
    -0.4512727935965806,
    -0.5696706745606116,
    2.8238458077185005,
    0.3648437532272713,
]


def test_mean_and_variance_are_those_of_a_standard_gumbel():
    noise = torch.cat([gumbel(row_keys(range(200), 11), position, 500) for position in range(4)])  # 400,000 values
    assert noise.mean().item() == pytest.approx(EULER, abs=5 * math.sqrt(math.pi**2 / 6 / 400_000))
    assert noise.var().item() == pytest.approx(math.pi**2 / 6, rel=0.02)


def test_rows_positions_and_tokens_are_uncorrelated():
    noise = torch.stack(
        [gumbel(row_keys(range(40), 5), position, 40) for position in range(40)]
    )  # position, row, token
    for dim in range(3):
        a, b = noise.narrow(dim, 0, 39).flatten(), noise.narrow(dim, 1, 39).flatten()
        assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1].item()) < 5 / math.sqrt(39 * 1600)


def test_the_argmax_of_noisy_log_probabilities_is_a_sample_from_them():
    logits = torch.tensor([2.0, 0.0, 1.0, -1.0, 0.5, -3.0], dtype=torch.float64)
    num_draws = 20_000
    drawn = (torch.log_softmax(logits, 0) + gumbel(row_keys(range(num_draws), 3), 0, 6)).argmax(dim=1)
    expected = torch.softmax(logits, 0) * num_draws
    chi_square = ((torch.bincount(drawn, minlength=6) - expected) ** 2 / expected).sum().item()
    assert chi_square < 20.5  # the 99.9th percentile for 5 degrees of freedom


MASK = 2**64 - 1
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def unshift(bits, by):
    """The x with x ^ (x >> by) == bits."""
    out = bits
    for _ in range(64 // by):
        out = bits ^ (out >> by)
    return out


def key_with_bits(bits):
    """The key whose noise at position 0 for token 0 comes from these 64 bits: splitmix64's finalizer undone."""
    bits = unshift(bits, 31)
    bits = unshift(bits * pow(MULTIPLIERS[1], -1, 2**64) & MASK, 27)
    bits = unshift(bits * pow(MULTIPLIERS[0], -1, 2**64) & MASK, 30)
    return bits - 2**64 if bits >= 2**63 else bits


def test_the_rarest_bits_still_give_finite_noise():
    noise = gumbel(torch.tensor([key_with_bits(0), key_with_bits(MASK)]), 0, 1).flatten().tolist()
    # the smallest and the largest uniform variable, 2⁻⁵³ and 1 − 2⁻⁵³
    assert noise == pytest.approx([-math.log(53 * math.log(2)), 53 * math.log(2)], rel=1e-9)


def test_extreme_keys_and_positions_give_finite_noise():
    keys = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63)])
    for position in (0, 1, 10**6, 2**40):
        assert torch.isfinite(gumbel(keys, position, 1000)).all()

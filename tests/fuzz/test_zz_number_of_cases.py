"""The last file of this folder, and so the last to run: a whole run of the folder judges a thousand cases or more."""

import pytest

MODULES = ("configurations", "costs", "data_files", "flags", "models", "training")


def test_a_thousand_cases(request, num_judged):
    collected = {item.path.stem for item in request.session.items}
    if not {f"test_{name}" for name in MODULES} <= collected or request.config.getoption("keyword"):
        pytest.skip("only a part of the cases was asked for")
    print(f"{num_judged()} cases")
    assert num_judged() >= 1_000

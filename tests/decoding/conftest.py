"""What tests of decoding share: a token at which continuations end."""

import pytest


@pytest.fixture
def an_eos():
    """Finds a token at which some of these continuations end at different times, and others do not."""

    def find(outs):
        for token in sorted({token for out in outs for token in out}):
            ends = [out.index(token) if token in out else None for out in outs]
            if None in ends and len(set(ends)) >= 3:
                return token
        raise AssertionError("no token ends rows at different times: choose other weights")

    return find

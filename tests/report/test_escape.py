import pytest

from mgs.report.escape import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, 1 + 1 = 2.", "plain text, 1 + 1 = 2."),
        ("naïve ✓ 漢字 Ω –", "naïve ✓ 漢字 Ω –"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]8;;http://x\x07link", r"\x1b]8;;http://x\x07link"),
        ("\x9b2J", r"\x9b2J"),  # the one-byte form of ESC [
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("left\u202eright", r"left\u202eright"),  # text that runs backwards
        ("a\u00a0b\u2028c", r"a\xa0b\u2028c"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("\ud800", r"\ud800"),  # cannot be encoded at all
        ("", ""),
    ],
)
def test_only_what_could_act_on_a_terminal_is_written_out(text, shown):
    assert printable(text) == shown


def test_no_character_below_a_space_or_above_ascii_controls_gets_through():
    controls = [chr(i) for i in (*range(32), *range(127, 160))]
    assert all(printable(c) != c and printable(c).isascii() for c in controls)

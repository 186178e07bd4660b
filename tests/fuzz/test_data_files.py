"""Files that are not what they should be, for both tasks and every command that reads them."""

import gzip
import lzma

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

fuzz = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))

LINE = b"the cat sat on the red mat and went home\n"
FILES = {
    "empty": b"",
    "blank": b" \n\t\n\r\n\n",
    "binary": bytes(range(256)),
    "Latin-1": "café au lait\n".encode("latin-1") * 9,
    "UTF-16": "the cat sat".encode("utf-16"),
    "a lone surrogate": b"\xed\xa0\x80 lone\n",
    "no newline at the end": LINE.strip(),
    "NULs": LINE + b"\0\n",
    "CRLF": (LINE.strip() + b"\r\n") * 9,
    "CR alone": (LINE.strip() + b"\r") * 9,
    "a byte order mark": b"\xef\xbb\xbf" + LINE,
    "10^5 tokens in a line": b"a b " * 50_000,
    "a word of 10^4 letters": b"x" * 10_000,
    "short lines": b"a\n" * 2_000,
    "two columns": (LINE.strip() + b"\t" + LINE) * 9,
    "ragged columns": b"a\tb\nc\n",
    "three columns": b"a\tb\tc\n" * 3,
    "headings": b" = a title = \n" * 9,
    "special tokens spelt out": b"<|endoftext|> </s> <pad> <unk> <s> the cat\n" * 9,
    "terminal escapes": b"\x1b[31mred\x1b[0m \x07 \x08 the cat sat on\n" * 9,
    "text turned round": "\u202e the cat \u2066 sat on the mat\n".encode() * 9,
    "markup": b"<script>alert(1)</script> &lt;b&gt; [red]the[/red] cat\n" * 9,
    "other line ends": "the cat\u2028sat\u2029on\x0bthe\x0cmat\x85 and\n".encode() * 9,
    "combining marks": ("e\u0301" * 300 + "\n").encode() * 3,
}
PACKED = {"txt": bytes, "gz": gzip.compress, "xz": lambda content: lzma.compress(content, preset=0)}
COMMANDS = [
    "data --tokenizer causal --context 3",
    "data --tokenizer causal --split valid --drop_headings true",
    "data --tokenizer new",
    "data --tokenizer new --task translation --lowercase true",
    "data --tokenizer pairs --task translation --unescape true",
    "evaluate --model causal --max_new_tokens 2 --context 3 --examples 2 --scorer causal",
    "evaluate --model pairs --max_new_tokens 2 --examples 2",
    "generate --model causal --max_new_tokens 2 --context 3 --num 2",
    "generate --model pairs --max_new_tokens 2 --num 2",
    "train mle --model causal --context 3 --report_to none --use_cpu true",
    "train mgs --model pairs --report_to none --use_cpu true",
    "train mrt --model new:tiny --report_to none --use_cpu true",
    "train pg --model causal --eval_data a.txt --context 3 --report_to none --use_cpu true",
]
NOWHERE = [
    "",
    " ",
    ".",
    "~",
    "nowhere",
    "nowhere.txt",
    "no\0where",
    "a" * 300,
    "a/" * 3000,
    "\udc80",
    "\u202e",
    "/dev/null",
]
contents = st.sampled_from(list(FILES.values())) | st.binary(max_size=200) | st.text(max_size=80).map(
    lambda text: text.encode("utf-8", "surrogatepass")
)  # fmt: skip


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_known_oddities(judge, cheap, words, content):
    for command in COMMANDS:
        judge(*words(command), "--data", "a.txt", files={"a.txt": content})


@settings(fuzz, max_examples=80)
@given(command=st.sampled_from(COMMANDS), left=contents, right=contents, draw=st.data())
def test_two_files(judge, cheap, words, command, left, right, draw):
    """Sides that are mostly of different length, compressed or not, perhaps cut off; named well or badly."""
    kind, cut = draw.draw(st.sampled_from(list(PACKED))), draw.draw(st.sampled_from([None, None, -1, 9]))
    a, b = f"a.{kind}", f"b.{kind}"
    source = draw.draw(st.sampled_from([f"{a},{b}", a, f"{b},{a}", f"{a},", ",", f"{a},{a}", "."]))
    languages = draw.draw(st.sampled_from([[], [], ["--languages", "de-en"], ["--languages", "de"]]))
    files = {"a.txt": left} | {a: PACKED[kind](left)[:cut], b: PACKED[kind](right)[:cut]}
    judge(*words(command), "--data", source, *languages, files=files)


@pytest.mark.parametrize("command", [COMMANDS[0], COMMANDS[4], COMMANDS[7], COMMANDS[9]])
def test_what_is_no_file(judge, cheap, words, command):
    for source in NOWHERE:
        judge(*words(command), f"--data={source}", files={"text.txt": LINE})

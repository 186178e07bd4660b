"""Configuration files: of other types, unknown, nested, with tags and aliases, binary, empty, enormous."""

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

fuzz = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))

#: Commands, with options of theirs that a file may set.
COMMANDS = {
    "train mgs --model causal --data text.txt": "seed out lengths temperature report_to cost lr_scheduler_kwargs split",
    "train pg --model causal --data text.txt": "mle_share learning_rate decoder accelerator_config log_level",
    "evaluate --model causal --data text.txt --examples 2 --max_new_tokens 2": "split seed json trust_remote_code",
    "generate --model causal --data text.txt --max_new_tokens 2": "prompt num decoder lowercase",
    "data --tokenizer causal --data text.txt": "context split json label_names task min_length languages",
    "bench": "models new_tokens quick plot",
    "demo": "seed out",
}
ODD = ["--help", "--config", "-1", "1e-3", "none", "~", "\0", "\x1b]0;", "\u202e", "9" * 4000]
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates(), st.binary(max_size=4),
    st.sampled_from(ODD),
)  # fmt: skip
nested = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
)
values = scalars | st.lists(scalars, max_size=3) | nested

FILES = [
    b"", b"\n\n", b"# nothing\n", b"just words", b"- a\n- b\n", b"42", b"null", b"\x80\x81", b"\xff\xfea\0:\0", b"\0",
    b"a: b: c", b"a:\n\t- b", b"1: 2", b"true: false", b"~: 3", b"? [seed]\n: 3", b"? {a: b}\n: 3", b"config: x.yaml",
    b"seed: !!python/object/apply:os.mkdir [pwned]", b"!!python/object/new:os.mkdir [pwned]", b"seed: !custom 3",
    b"seed: !!python/name:os.system", b"seed: !!int abc", b"seed: !!timestamp abc", b"seed: 2024-99-99",
    b"seed: !!bool abc", b"seed: !!binary '*'", b"seed: &a 3\nmax_steps: *a", b"seed: &a [*a]", b"<<: {seed: -1}",
    b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", b"{" * 5000, b"seed: " + b"[" * 300 + b"]" * 300, b"a" * 100_000,
    b"x: 1\n" * 3_000, b"#" * 2_000_000, b"seed: 1\nseed: -1\nSEED: 3", b"seed: 3\n---\nseed: 4", b"seed: [1, 2]",
    b"%YAML 9.9\n---\nseed: 1", b"\xef\xbb\xbfseed: oops", b"prompt: [--trust_remote_code, a]", b"seed: {a: 1}",
    b"prompt: ['a', '--seed', '3']", b"lengths: []", b"out: \"\\ud800\"", b"out: \"a\\0b\"", b"trust_remote_code: true",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split(" --")[0])
def test_values(judge, cheap, words, texts, command):
    name = st.sampled_from(COMMANDS[command].split()) | st.text(max_size=5)

    @settings(fuzz, max_examples=30)
    @given(st.dictionaries(name, values, min_size=1, max_size=3))
    def cases(options):
        content = yaml.safe_dump(options, allow_unicode=True).encode("utf-8", "surrogatepass")
        judge(*words(command), "--config", "c.yaml", files=texts | {"c.yaml": content})

    cases()


@pytest.mark.parametrize("command", ["train mgs", "generate", "data", "demo"])
def test_files(judge, cheap, command):
    for content in FILES:
        assert judge(*command.split(), "--data=nowhere.txt", "--config", "c.yaml", files={"c.yaml": content}).code == 2
    for argv in ("--config", "--config=", "--config .", "--config no\0where", "--config c --config c"):
        assert judge(*command.split(), *argv.split(" ")).code == 2


@settings(fuzz, max_examples=60)
@given(content=st.binary(max_size=60) | st.text("abseed: -[]{}&*!#|>'\"%@`\n\t", max_size=60).map(str.encode))
def test_noise(judge, content):
    assert judge("data", "--config", "c.yaml", files={"c.yaml": content}).code == 2

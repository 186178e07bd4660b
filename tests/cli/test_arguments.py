from dataclasses import dataclass

import pytest
import yaml

from mgs.cli.arguments import Parser
from mgs.errors import UserError
from mgs.training import MGSConfig
from mgs.training.config import option


@dataclass
class Options:
    """Few options."""

    rate: float = option(0.5, "A number.")
    num_steps: int = option(3, "A count.")
    name: str | None = option(None, "A word.")
    lengths: list[float] = option([1.0], "Numbers.")
    loud: bool = option(False, "A switch.")


@pytest.fixture
def parse():
    return lambda *argv: Parser((Options,), "mgs try", "Try it.").parse(argv)[0]


@pytest.fixture
def config(tmp_path):
    def write(text):
        file = tmp_path / "options.yaml"
        file.write_text(text)
        return str(file)

    return write


def test_without_flags_defaults_hold(parse):
    assert parse() == Options()


def test_flags_may_be_written_in_several_ways(parse):
    expected = Options(rate=0.001, num_steps=7, name="x", lengths=[0.1, 0.3], loud=True)
    assert parse("--rate", "1e-3", "--num_steps", "7", "--name", "x", "--lengths", "0.1", "0.3", "--loud") == expected
    assert parse("--rate=1e-3", "--num-steps=7", "--name=x", "--lengths", ".1", ".3", "--loud", "true") == expected


def test_the_last_of_two_flags_counts(parse):
    assert parse("--rate", "1", "--rate", "2").rate == 2


def test_a_file_gives_what_flags_would_give(parse, config):
    file = config("rate: 1e-3\nnum_steps: 7\nname: 5\nlengths: [0.1, 3e-1]\nloud: true\n")
    assert parse("--config", file) == parse(f"--config={file}") == Options(0.001, 7, "5", [0.1, 0.3], True)


def test_flags_come_on_top_of_the_file_wherever_they_stand(parse, config):
    file = config("rate: 1\nnum_steps: 7\n")
    assert parse("--rate", "2", "--config", file) == Options(rate=2, num_steps=7)
    assert parse("--config", file, "--rate", "2") == Options(rate=2, num_steps=7)


def test_an_empty_value_in_a_file_means_the_default(parse, config):
    assert parse("--config", config("rate:\nname: null\n")) == Options()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_stpes: 7\n", "unknown option 'num_stpes': did you mean 'num_steps'?"),
        ("- rate\n- 1\n", "must be a mapping of options to values"),
        ("just words", "must be a mapping"),
        ("", "must be a mapping"),
        ("rate: [1\n", "cannot read the configuration"),
        ("rate: fast\n", "argument --rate: invalid float value: 'fast'"),
        ("7: 1\n", "unknown option '7'"),
    ],
)
def test_a_file_that_is_wrong_is_one_sentence(parse, config, text, message):
    with pytest.raises(UserError) as caught:
        parse("--config", config(text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--rat", "1"], "unknown option 'rat': did you mean 'rate'?"),  # nothing is abbreviated
        (["--num-stesp=1"], "unknown option 'num_stesp': did you mean 'num_steps'?"),
        (["--num_steps", "abc"], "invalid int value: 'abc' (see `mgs try --help`)"),
        (["--num_steps", "1.5"], "invalid int value: '1.5'"),
        (["--rate"], "argument --rate: expected one argument"),
        (["--loud", "perhaps"], "perhaps"),
        (["stray"], "unexpected argument 'stray'"),
        (["--config"], "--config needs a file"),
        (["--config", "nowhere.yaml"], "cannot read the configuration 'nowhere.yaml'"),
    ],
)
def test_flags_that_are_wrong_are_one_sentence(parse, argv, message):
    with pytest.raises(UserError) as caught:
        parse(*argv)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_of_bytes_is_refused(parse, tmp_path):
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(UserError, match="cannot read the configuration"):
        parse("--config", str(tmp_path / "binary.yaml"))


def test_among_hundreds_of_options_only_the_nearest_is_named():
    with pytest.raises(UserError) as caught:
        Parser((MGSConfig,), "mgs train mgs", "").parse(["--out", "x", "--num_candidtes", "3"])
    assert str(caught.value) == (
        "unknown option 'num_candidtes': did you mean 'num_candidates'? (see --help, or --help-all for all of them)"
    )


def test_an_option_without_a_near_one_is_a_sentence_too():
    with pytest.raises(UserError) as caught:
        Parser((MGSConfig,), "mgs train mgs", "").parse(["--out", "x", "--zzzzqqqq", "3"])
    assert str(caught.value) == "unknown option 'zzzzqqqq' (see --help, or --help-all for all of them)"


def test_out_is_short_for_output_dir():
    (config,) = Parser((MGSConfig,), "mgs train mgs", "").parse(
        ["--out=here", "--max-steps", "3", "--learning_rate", "1e-3"]
    )
    assert (config.output_dir, config.max_steps, config.learning_rate) == ("here", 3, 1e-3)


def mgs_config(*argv):
    return Parser((MGSConfig,), "mgs train mgs", "").parse(["--out", "x", *argv])[0]


def test_flags_win_over_a_recipe_and_so_does_a_file_that_names_it(config):
    file = config("noise: 1.0\nnum_candidates: 9\n")
    made = mgs_config("--config", config("recipe: dependable\nnoise: 1.0\nnum_candidates: 9\n"))
    assert (made.recipe, made.noise, made.num_candidates, made.stay) == ("dependable", 1.0, 9, True)
    for argv in (["--recipe", "dependable", "--config", file], ["--config", file, "--recipe=dependable"]):
        made = mgs_config(*argv, "--lengths", "0.5", "0.7", "--num_candidates", "5")
        assert (made.recipe, made.noise, made.num_candidates, made.lengths) == ("dependable", 0.0, 5, [0.5, 0.7])
        assert (made.length_unit, made.stay, made.learning_rate) == ("budget", True, 1.0)


@pytest.mark.parametrize("recipe", ["paper", "dependable", "risk"])
@pytest.mark.parametrize("earlier", ["paper", "dependable", "risk"])
def test_a_recipe_in_a_flag_wins_over_all_that_a_run_had_from_its_own(config, earlier, recipe):
    run = mgs_config("--recipe", earlier, "--rank", "2").resolved()
    again = mgs_config("--config", config(yaml.safe_dump(run)), "--recipe", recipe)
    assert again.resolved() == mgs_config("--recipe", recipe, "--rank", "2").resolved()


def test_without_a_recipe_nothing_changes():
    assert mgs_config().resolved() == mgs_config("--recipe", "paper").resolved()
    assert mgs_config().num_candidates == 4


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--recipe", "dependabel"], "unknown recipe 'dependabel': did you mean 'dependable'? (allowed: paper, depend"),
        (["--recipe"], "argument --recipe: expected one argument"),
        (["--recipe="], "unknown recipe ''"),
    ],
)
def test_recipes_that_do_not_exist_are_refused(argv, message):
    with pytest.raises(UserError) as caught:
        mgs_config(*argv)
    assert message in str(caught.value)

import dataclasses

import pytest
import yaml

from mgs.errors import UserError
from mgs.search import ProposalForm, Temperature
from mgs.training import MGSConfig, MLEConfig, MRTConfig, PGConfig, SequenceConfig

ALL = [MLEConfig, MGSConfig, MRTConfig, PGConfig]


@pytest.fixture
def make(tmp_path):
    return lambda config_type, **options: config_type(output_dir=str(tmp_path), use_cpu=True, **options)


@pytest.mark.parametrize("config_type", ALL)
def test_the_defaults_are_the_papers_settings(make, config_type):
    config = make(config_type)
    assert config.learning_rate == 6.25e-5
    assert config.weight_decay == 0.01
    assert config.max_grad_norm == 1.0
    assert config.optim == "adamw_torch" or config.optim.value.startswith("adamw_torch")
    assert config.batch_tokens == 1024
    assert config.context == 10
    assert (config.decoder, config.max_new_tokens, config.eval_max_new_tokens) == ("greedy", None, None)
    assert (config.eval_strategy, config.eval_steps, config.patience, config.keep_best) == ("steps", 100, 10, True)


def test_mgs_defaults_to_the_published_search(make):
    config = make(MGSConfig)
    assert config.num_candidates == 4
    assert config.proposal_form() == ProposalForm("mixture", 0.5, (1.0,), 1.0, "tensor", "unit", True, False)
    assert config.search_temperature() == Temperature(1.0)
    assert (config.num_gradients, config.score_prefixes, config.gradient_norm) == (1, None, 1.0)


def test_mrt_and_pg_take_four_samples_and_a_tenth_of_mle(make):
    mrt, pg = make(MRTConfig), make(PGConfig)
    assert (mrt.num_samples, mrt.mle_share) == (pg.num_samples, pg.mle_share) == (4, 0.1)
    assert (mrt.risk_temperature, mrt.greedy_candidate, mrt.gold_candidate, mrt.length_normalised) == (
        1,
        False,
        False,
        False,
    )
    assert pg.baseline_decay == 0.9


@pytest.mark.parametrize("config_type", ALL)
def test_the_best_evaluation_is_the_lowest(make, config_type):
    config = make(config_type)
    assert config.load_best_model_at_end
    assert config.greater_is_better is False
    assert config.metric_for_best_model == ("eval_perplexity" if config_type is MLEConfig else "eval_cost")
    assert not make(config_type, keep_best=False).load_best_model_at_end
    assert not make(config_type, eval_strategy="no").load_best_model_at_end


@pytest.mark.parametrize(
    ("option", "given", "nearest"),
    [
        ("decoder", "gredy", "greedy"),
        ("components", "mixtur", "mixture"),
        ("density", "exakt", "exact"),
        ("noise_scale", "tensors", "tensor"),
        ("split", "lenght", "length"),
    ],
)
def test_a_choice_that_does_not_exist_names_the_nearest_that_does(make, option, given, nearest):
    with pytest.raises(UserError, match=rf"{given}.*did you mean '{nearest}'\?"):
        make(MGSConfig, **{option: given})


@pytest.mark.parametrize(
    ("config_type", "options", "message"),
    [
        (MGSConfig, {"temperature": "warm"}, "temperature must be a number or 'auto', got 'warm'"),
        (MGSConfig, {"temperature": -1}, "the temperature must be a number ≥ 0, .*; got -1"),
        (MGSConfig, {"temperature": None}, "temperature must be a number or 'auto', got None"),
        (MGSConfig, {"guides": "mel"}, "unknown guide 'mel': did you mean 'mle'"),
        (MLEConfig, {"max_steps": 0}, "max_steps must be at least 1, or -1 to train for num_train_epochs; got 0"),
        (MLEConfig, {"num_train_epochs": 0}, "num_train_epochs must be more than 0, got 0"),
        (MLEConfig, {"eval_steps": 0}, "eval_steps must be more than 0, got 0"),
        (MLEConfig, {"per_device_train_batch_size": 4}, "not used by these trainers: batch_tokens"),
        (MLEConfig, {"auto_find_batch_size": True}, "not used by these trainers: batch_tokens"),
        (MLEConfig, {"metric_for_best_model": "loss"}, "not used by these trainers: best_by"),
        (MGSConfig, {"mix": 1.5}, "mix .* between 0 and 1"),
        (MGSConfig, {"noise": -1.0}, "noise must be"),
        (MGSConfig, {"density": "exact", "noise": 0.0}, "exact density needs noise"),
        (MGSConfig, {"score_apart": True}, "score_apart needs .*: give score_prefixes"),
        (MGSConfig, {"halvings": -1}, "halvings must be at least 0"),
        (MGSConfig, {"likelihood_weight": -0.1}, "likelihood_weight must be at least 0"),
        (MGSConfig, {"likelihood_budget": float("inf")}, "likelihood_budget must be at least 0 and finite"),
        (MGSConfig, {"probe_transfer": -2}, "probe_transfer must be at least 0"),
        (
            MLEConfig,
            {"eval_strategy": "epoch"},
            "eval_strategy cannot be epoch: use steps, and eval_steps between them",
        ),
        (MLEConfig, {"save_strategy": "epoch"}, "save_strategy cannot be epoch"),
        (MRTConfig, {"num_samples": 0}, "num_samples must be at least 1"),
        (PGConfig, {"mle_share": 1.1}, "mle_share is a probability"),
        (MLEConfig, {"fp16": True}, "fp16 is not supported.*use bf16"),
        (MLEConfig, {"gradient_accumulation_steps": 0}, "gradient_accumulation_steps"),
        (MLEConfig, {"decoder": "beam-0"}, "beam"),
    ],
)
def test_a_value_out_of_range_is_a_sentence(make, config_type, options, message):
    with pytest.raises(UserError, match=message) as caught:
        make(config_type, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", ["10", 10, 10.0, "1e1"])
def test_a_temperature_is_a_number_however_it_is_written(make, given):
    assert make(MGSConfig, temperature=given).search_temperature() == Temperature(10.0)


def test_temperature_auto_keeps_a_share_of_the_candidates(make):
    config = make(MGSConfig, temperature="auto", effective_share=0.3)
    assert config.search_temperature() == Temperature(None, 0.3)


@pytest.mark.parametrize("config_type", ALL)
def test_the_resolved_configuration_is_plain_and_holds_every_option_of_ours(make, config_type):
    config = make(config_type, max_steps=7)
    resolved = config.resolved()
    assert yaml.safe_load(yaml.safe_dump(resolved)) == resolved
    assert resolved["max_steps"] == 7
    for cls in config_type.__mro__:
        if cls.__module__ == SequenceConfig.__module__:
            assert set(cls.__annotations__) <= set(resolved)
    assert len(resolved) < 80  # not the library's several hundred


def test_the_resolved_configuration_makes_the_same_one_again(make):
    library = {
        "report_to": "none",
        "optim": "sgd",
        "adam_beta1": 0.7,
        "warmup_steps": 3,
        "lr_scheduler_kwargs": {"num_cycles": 2},
    }
    first = make(MGSConfig, **library, lengths=[0.1, 0.3], temperature="auto", learning_rate=1e-3, max_steps=5, seed=3)
    assert MGSConfig(**first.resolved()).resolved() == first.resolved()
    assert first.resolved().items() >= library.items()


def test_one_guide_and_one_length_are_given_as_they_are(make):
    config = make(MGSConfig, guides="ends", lengths=0.3)
    assert (config.guides, config.proposal_form().lengths) == (["ends"], (0.3,))


def test_a_copy_with_another_seed_is_a_configuration(make):
    assert dataclasses.replace(make(MGSConfig, best_by="edit"), seed=7).metric_for_best_model == "eval_edit"


def test_a_run_needs_a_folder():
    with pytest.raises(UserError, match="set output_dir"):
        MLEConfig(use_cpu=True)

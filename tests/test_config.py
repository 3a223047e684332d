"""Settings: typed, checked, refused where unknown, saved and loaded unchanged."""

import contextlib
import dataclasses
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agpo_core import config as module
from agpo_core import recipes
from agpo_core.config import FIELDS, KINDS, ConfigError, TrainConfig
from agpo_core.settings import choices

# -- unknown and mistyped settings


def test_an_unknown_key_raises_and_names_its_neighbour():
    for build in (TrainConfig.from_dict, lambda params: TrainConfig().replace(**params)):
        with pytest.raises(ConfigError, match="unknown setting 'learnig_rate'.*'learning_rate'"):
            build({"learnig_rate": 1.0e-5})


def test_an_unknown_key_without_neighbour_points_to_the_list():
    with pytest.raises(ConfigError, match="'zzz': see agpo_core.config.TrainConfig"):
        TrainConfig.from_dict({"zzz": 1})


def test_a_float_that_yaml_read_as_text_raises_and_says_how_to_write_it(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("method: grpo\nlearning_rate: 1e-6\n")  # no dot: text in YAML 1.1
    with pytest.raises(ConfigError, match="learning_rate must be a number, got the text '1e-6'.*dot"):
        recipes.load(path)
    path.write_text("method: grpo\nlearning_rate: 1.0e-6\n")
    assert recipes.load(path).learning_rate == 1e-6


def test_a_whole_number_serves_as_a_float():
    c = TrainConfig(horizon=5000, weights=[1, 1, 0])
    assert (c.horizon, type(c.horizon)) == (5000.0, float)
    assert c.weights == (1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"group_size": True}, "group_size must be int, got True"),
        ({"beta": True}, "beta must be float, got True"),
        ({"shared_prompt": 1}, "shared_prompt must be bool, got 1"),
        ({"group_size": 8.0}, "group_size must be int, got 8.0"),
        ({"group_size": None}, "group_size must be int, got None"),
        ({"model": 7}, "model must be str, got 7"),
        ({"data_dir": 7}, "data_dir must be str, got 7"),
        ({"tasks": "steps"}, "tasks must be a list of str, got 'steps'"),
        ({"tasks": [1]}, "tasks must be str, got 1"),
        ({"signals_mask": [True, 1, 1, 1]}, "signals_mask must be int, got True"),
        ({"weights": ["1e-1", 1.0, 1.0]}, "weights must be a number, got the text '1e-1'"),
        ({"beta": float("nan")}, "beta must be finite, got nan"),
        ({"horizon": float("inf")}, "horizon must be finite, got inf"),
    ],
)
def test_a_value_of_the_wrong_type_raises(params, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig.from_dict(params)


def test_lists_become_tuples_and_back():
    c = TrainConfig(tasks=["steps", "programs"], signals_mask=[1, 0, 1, 0], adam_betas=[0.9, 0.99])
    assert (c.tasks, c.signals_mask) == (("steps", "programs"), (1, 0, 1, 0))
    assert c.to_dict()["adam_betas"] == [0.9, 0.99]


# -- ranges


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"prompts_per_update": 0}, "prompts_per_update must be at least 1; got 0"),
        ({"probe_group_size": 0}, "probe_group_size must be at least 1, or null"),
        ({"micro_batch_prompts": -1}, "micro_batch_prompts must be at least 1, or null"),
        ({"train_problems": 0}, "train_problems must be at least 1, or null"),
        ({"test_samples": -1}, "test_samples must be 0 or more"),
        ({"horizon": -1}, "horizon must be 0 or more"),
        ({"beta": -0.1}, "beta must be 0 or more"),
        ({"learning_rate": 0}, "learning_rate must be at least 1e-12"),
        ({"tau_base": 0.0}, "tau_base must be at least 1e-06"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\]"),
        ({"top_p": 1.1}, r"top_p must be in \(0, 1\]"),
        ({"eval_every": 0.0}, r"eval_every must be in \(0, 1\]"),
        ({"warmup": 1.0}, r"warmup must be in \[0, 1\)"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\)"),
        ({"seed": -1}, r"seed must be in \[0, 2\*\*31\)"),
        ({"seed": 2**31}, r"seed must be in \[0, 2\*\*31\)"),
        ({"epsilon_min": 0.3, "epsilon_max": 0.2}, "epsilon_max must be at least epsilon_min"),
        ({"tau_min": 2.0}, "tau_max must be at least tau_min"),
        ({"weights": [1.0, 1.0]}, "weights must be three numbers"),
        ({"weights": [1.0, 1.0, -1.0]}, "weights must be 0 or more"),
        ({"signals_mask": [1, 1, 1]}, "signals_mask must be 4 bits, or 5 with H"),
        ({"signals_mask": [1, 1, 1, 2]}, r"signals_mask must be in \[0, 1\]"),
        ({"adam_betas": [0.9]}, "adam_betas must be two numbers"),
        ({"adam_betas": [0.9, 1.0]}, r"adam_betas must be in \[0, 1\)"),
        ({"minibatches": 5}, r"prompts_per_update must be a multiple of minibatches \(5\)"),
        ({"dispersion": "var"}, "dispersion must be one of std, mad, iqr; got 'var'"),
        ({"dtype": "float16"}, "dtype must be one of float32, bfloat16"),
    ],
)
def test_a_value_out_of_range_raises_and_names_the_range(params, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig.from_dict(params)


# -- settings that do not go together


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"kl_estimator": "k1"}, "k1 as a loss does nothing: its expected gradient is zero"),
        ({"kl_placement": "reward"}, "kl_placement reward takes only kl_estimator k1, got k3"),
        ({"reference": "none"}, "beta > 0 needs a reference policy"),
        ({"reference": "adapter_disabled"}, "needs adapters: set lora_rank above 0"),
        ({"group_size": 1, "advantage": "mixed"}, "every advantage 0 under advantage 'mixed'"),
        ({"group_size": 1}, "group_size 1 gives every advantage 0 under advantage 'group': .*advantage reinforce_pp"),
        ({"advantage": "gae"}, "gae needs a critic"),
        ({"critic": "head"}, "advantage 'group' with critic 'head': gae needs a critic, and no other"),
        ({"kl_control": "adaptive", "beta": 0.0}, "kl_control adaptive multiplies beta, which is 0"),
        ({"reward": "model"}, "reward model needs a reward_model"),
        ({"reward_model": "folder"}, "reward 'task' with reward_model 'folder'"),
        ({"controller_scope": "prompt", "probe_share": 0.5}, "needs a probe of every prompt: set probe_share to 1.0"),
        ({"controller_scope": "prompt", "probe_source": "previous_update"}, "probe_source to probe"),
        ({"activation_checkpointing": True}, "set shared_prompt to false"),
    ],
)
def test_settings_that_do_not_go_together_raise_and_say_why(params, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig.from_dict(params)


@pytest.mark.parametrize(
    "params",
    [
        {"kl_estimator": "k1", "kl_placement": "reward"},
        {"kl_estimator": "k1", "beta": 0.0},
        {"reference": "none", "beta": 0.0},
        {"reference": "adapter_disabled", "lora_rank": 4},
        {"activation_checkpointing": True, "shared_prompt": False},
        {"probe_group_size": 1},  # a probe of one is poor, and allowed
        {"signals_mask": [1, 1, 1, 1, 0]},
        {"epsilon_min": 0.2, "epsilon_max": 0.2},
        {"horizon": 0},
        {"seed": 2**31 - 1},
        {"group_size": 1, "advantage": "reinforce_pp"},
        {"group_size": 1, "advantage": "greedy_baseline"},
        {"group_size": 1, "advantage": "gae", "critic": "model"},
        {"reward_clip": None, "critic_learning_rate": None},
    ],
)
def test_settings_at_the_edge_of_what_is_allowed_are_taken(params):
    c = TrainConfig.from_dict(params)
    assert {name: c.to_dict()[name] for name in params} == params


# -- derived values


def test_the_probe_has_the_size_of_a_group_unless_it_is_given_one():
    assert TrainConfig(group_size=6).probe_size == 6
    assert TrainConfig(group_size=6, probe_group_size=3).probe_size == 3


@pytest.mark.parametrize(
    ("clip", "temperature", "expected"),
    [
        ("fixed", "fixed", False),
        ("adaptive", "fixed", True),
        ("fixed", "adaptive", True),
        ("adaptive", "adaptive", True),
    ],
)
def test_a_probe_is_needed_where_a_controller_listens(clip, temperature, expected):
    assert TrainConfig(clip=clip, temperature=temperature).needs_probe is expected


def test_a_free_probe_is_not_sampled():
    free = TrainConfig(clip="adaptive", probe_source="previous_update")
    assert free.adapts and not free.needs_probe


def test_a_share_of_the_prompts_is_rounded_up():
    assert TrainConfig(probe_share=0.25).probed_prompts == 9  # of 36
    assert TrainConfig(probe_share=0.01).probed_prompts == 1


def test_a_configuration_cannot_be_changed_in_place_and_a_copy_is_checked():
    c = TrainConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        c.beta = 0.0
    assert c.replace(beta=0.0).beta == 0.0
    assert c.beta == 0.03
    with pytest.raises(ConfigError, match="beta must be 0 or more"):
        c.replace(beta=-1.0)


# -- YAML and hash


def test_yaml_gives_every_setting_back(tmp_path):
    c = TrainConfig(
        tasks=["steps"],
        learning_rate=1.0e-6,
        sigma_min=1.0e-12,
        data_dir="数据",
        micro_batch_prompts=3,
        signals_mask=[1, 1, 0, 1],
    )
    c.save(tmp_path / "config.yaml")
    again = recipes.load(tmp_path / "config.yaml")
    assert again == c
    assert again.hash() == c.hash()
    lines = (tmp_path / "config.yaml").read_text().splitlines()
    assert [line.split(":")[0] for line in lines if line[0] != "-"] == list(FIELDS)  # flat, in order


CHANGED = {  # a value other than the default, where none follows from the default
    "beta": 0.01,
    "method": "agpo",
    "model": "tiny-llama",
    "tasks": ["steps"],
    "test_tasks": ["steps"],
    "decontaminate": ["steps"],
    "train_problems": 30,
    "test_samples": 16,
    "data_dir": "folder",
    "system_prompt": "Be brief.",
    "template_arguments": ["enable_thinking=false"],
    "stop_tokens": ["\n"],
    "lora_rank": 1,
    "probe_group_size": 2,
    "micro_batch_prompts": 1,
    "weights": [1.0, 1.0, 0.2],
    "signals_mask": [1, 1, 1, 0],
    "adam_betas": [0.9, 0.99],
    "minibatches": 2,
    "activation_checkpointing": True,
    "shared_prompt": False,
    "reward_clip": 1.0,
    "critic_learning_rate": 1.0e-3,
    "advantage": "dr_grpo",
    "critic": "model",
    "train_on_evaluation_sets": True,
    "reward": "model",
    "reward_model": "another",
}
TOGETHER = {  # what a change needs beside it
    "activation_checkpointing": {"shared_prompt": False},
    "kl_placement": {"kl_estimator": "k1"},
    "kl_estimator": {"kl_placement": "loss"},
    "reference": {"lora_rank": 1},
    "critic": {"advantage": "gae", "critic": "head"},
    "kl_control": {"beta": 0.01},
    "reward_model": {"reward": "model", "reward_model": "folder"},
}


@pytest.mark.parametrize("name", FIELDS)
def test_the_hash_changes_with_every_field(name):
    base = {"beta": 0.0, **TOGETHER.get(name, {})}  # beta 0: every pair of KL settings is allowed
    default = TrainConfig(**base).to_dict()[name]
    if name in CHANGED:
        other = CHANGED[name]
    elif several := choices(KINDS[name]):
        other = several[several.index(default) - 1]
    else:
        other = default * 2 if isinstance(default, int) else default * 0.99
    beside = {"reward_model": "folder"} if name == "reward" else {}
    changed = TrainConfig(**{**base, name: other, **beside})
    assert changed.to_dict()[name] != default
    assert changed.hash() != TrainConfig(**base).hash()


# fmt: off
DEFAULTS = {  # of numerics version 2
    "method": "grpo", "seed": 42, "model": "tiny-qwen2-a", "tasks": [], "data_dir": None,
    "train_on_evaluation_sets": False, "train_problems": None, "test_tasks": [], "decontaminate": [], "lora_rank":
    0, "reference": "auto", "chat_template": "auto", "system_prompt": None, "template_arguments": [], "stop_tokens":
    [], "horizon_unit": "tokens", "horizon": 100000.0, "engine": "transformers", "engine_memory": 0.5,
    "prompts_per_update": 36, "group_size": 8, "probe_group_size": None, "probe_share": 1.0, "probe_source":
    "probe", "tau_base": 1.0, "top_p": 0.95, "max_completion_tokens": 24, "max_sequence_tokens": 1024, "max_turns":
    4, "max_observation_characters": 512, "rollout_batch": 512, "reward": "task", "reward_model": None,
    "failed_grading": "zero", "reward_clip": None, "reward_scale": 1.0, "advantage": "group", "credit":
    "return_to_go", "population": "tokens", "convention": "paper", "critic": "none", "gae_lambda": 0.95,
    "gae_gamma": 1.0, "value_clip": 0.2, "value_weight": 0.1, "critic_learning_rate": None, "dispersion": "std",
    "dispersion_fallback": "std", "equal_groups": "keep", "ratio": "token", "ratio_temperature": "rollout",
    "aggregation": "sequence_mean", "beta": 0.03, "kl_estimator": "k3", "kl_placement": "loss", "kl_control":
    "fixed", "kl_target": 6.0, "kl_horizon": 10000.0, "clip": "fixed", "epsilon_base": 0.2, "epsilon_min": 0.05,
    "epsilon_max": 0.4, "alpha": 1.0, "gamma": 0.5, "delta": 0.2, "zeta": 0.05, "clip_entropy": "raw", "step_kl":
    "clamp", "step_kl_estimator": "k1", "temperature": "fixed", "tau_min": 0.5, "tau_max": 1.5, "sensitivity": 0.15,
    "momentum": 0.95, "weights": [1.0, 1.0, 0.1], "baseline_start": "zero", "centring": "absolute", "signals_mask":
    [1, 1, 1, 1], "skewness": "g1", "skewness_guard": "std", "sigma_min": 1e-06, "kappa_max": 10.0,
    "missing_answers": "shared", "controller_scope": "update", "learning_rate": 1.5e-05, "warmup": 0.05,
    "adam_betas": [0.9, 0.95], "weight_decay": 0.1, "max_grad_norm": 1.0, "minibatches": 4, "epochs": 2,
    "micro_batch_prompts": None, "dtype": "float32", "attn_implementation": "auto", "activation_checkpointing":
    False, "shared_prompt": True, "dpo_beta": 0.1, "eval_every": 0.25, "dev_problems": 100, "test_problems": 400,
    "test_samples": 0, "checkpoint_every": 0.25,
}
# fmt: on


def test_a_setting_at_its_default_leaves_the_hash_of_earlier_runs_alone():
    text = json.dumps([module.NUMERICS_VERSION, {"beta": 0.01}])
    assert TrainConfig(beta=0.01).hash() == hashlib.sha256(text.encode()).hexdigest()[:10]


def test_no_default_changes_unless_the_numerics_version_does():
    """The hash does not see defaults: a new one under the same version would reuse runs of the old one."""
    known = {name: value for name, value in TrainConfig().to_dict().items() if name in DEFAULTS}
    assert (module.NUMERICS_VERSION, known) == (2, DEFAULTS)
    assert known.keys() == FIELDS.keys(), "a new setting: add it, with its default, to DEFAULTS"


def test_the_hash_changes_with_the_numerics_version_and_with_nothing_else(monkeypatch):
    first = TrainConfig().hash()
    assert first == TrainConfig(beta=0.03, weights=[1, 1, 0.1]).hash()
    assert len(first) >= 8
    assert int(first, 16) >= 0
    monkeypatch.setattr(module, "NUMERICS_VERSION", module.NUMERICS_VERSION + 1)
    assert TrainConfig().hash() != first


def test_a_setting_that_is_no_choice_has_no_choices():
    assert choices(KINDS["dispersion"]) == ("std", "mad", "iqr")
    assert [choices(KINDS[name]) for name in ("tasks", "weights", "beta", "reward_model")] == [()] * 4


# -- what cannot end well is refused when it is loaded


def numbers(kind):
    """Whether a field holds a number, or a list of them."""
    return any(number in str(kind) for number in ("int", "float"))


@pytest.mark.parametrize("value", [10**400, 1e300, 1e39, 10**25, 1e-40, -1e300])
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if numbers(kind)])
def test_a_number_that_no_run_can_have_is_refused_by_name(name, value):
    default = FIELDS[name].default
    if isinstance(default, tuple):
        value = [value, *default[1:]]
    with pytest.raises(ConfigError, match=name) as caught:
        TrainConfig.from_dict({name: value})
    assert len(str(caught.value)) < 250 and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"prompts_per_update": 65536, "group_size": 1024, "minibatches": 4}, "group_size must be smaller"),
        ({"clip": "adaptive", "prompts_per_update": 65536, "probe_group_size": 64}, "probe_group_size must be smaller"),
        ({"prompts_per_update": 4096, "max_completion_tokens": 2**18}, "max_completion_tokens must be smaller"),
        ({"horizon": 1e9, "horizon_unit": "updates"}, "horizon must be at most 1e.08 updates"),
        ({"epsilon_base": 1.0}, r"epsilon_base must be in \(0, 1\)"),
        ({"epsilon_max": 1.5}, r"epsilon_max must be in \(0, 1\)"),
        ({"clip": "adaptive", "epsilon_base": 0.5}, r"epsilon_base must be at most epsilon_max \(0.4\)"),
        ({"temperature": "adaptive", "tau_base": 1.6}, r"tau_base must be between tau_min \(0.5\) and tau_max \(1.5\)"),
        ({"temperature": "adaptive", "tau_base": 0.4}, "tau_base must be between"),
        ({"tasks": ["steps", "steps"]}, "tasks must be a list in which no name stands twice"),
        ({"test_tasks": ["a", "b", "a"]}, "test_tasks must be a list in which no name"),
        ({"tasks": [str(i) for i in range(2000)]}, "tasks must have at most 1000 entries"),
        ({"model": ""}, "model must be a text of printable characters"),
        ({"data_dir": "a\0b"}, "data_dir must be a text of printable characters"),
    ],
)
def test_what_does_not_fit_together_or_does_not_end_is_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig.from_dict(params)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefghij", "bcdefghijk", strict=True)
)
ODD_FILES = {
    "not YAML": (b"method: [grpo\n", "line 2"),
    "a tab": (b"method:\tgrpo\n", "line 1"),
    "not UTF-8": (b"method: grpo\nmodel: \xff\xfe\n", "is not UTF-8 at byte 20"),
    "UTF-16": ("method: grpo\n".encode("utf-16"), "is not UTF-8"),
    "control characters": (b"method: grpo\0\n", "special characters are not allowed"),
    "a list": (b"- method\n- grpo\n", "must hold lines of the form `key: value`"),
    "a number": (b"7\n", "must hold lines of the form"),
    "nothing": (b"", "names no method"),
    "a key twice": (b"method: grpo\nbeta: 0.1\nbeta: 0.2\n", "line 3: the key 'beta' stands twice"),
    "a key twice, quoted": (b"method: grpo\n'beta': 0.1\nbeta: 0.2\n", "'beta' stands twice"),
    "a number as key": (b"method: grpo\n7: 1\n", "the key 7 is not text"),
    "a list as key": (b"method: grpo\n[a, b]: 1\n", "line 2"),
    "no key": (b"method: grpo\n~: 1\n", "the key None is not text"),
    "a Python tag": (b"method: grpo\nmodel: !!python/name:os.system ''\n", "line 2: could not determine"),
    "another tag": (b"method: !secret grpo\n", "line 1: could not determine"),
    "two documents": (b"method: grpo\n---\nmethod: agpo\n", "line 2: but found another document"),
    "no such date": (b"method: grpo\nmodel: 2026-13-45\n", "holds a value that YAML cannot read"),
    "a number of 5000 digits": (b"method: grpo\nseed: " + b"9" * 5000 + b"\n", "holds a value that YAML cannot read"),
    "deep nesting": (b"method: " + b"[" * 1500, "config.yaml"),
    "a bomb": (BOMB.encode() + b"method: grpo\ntasks: *k\n", "unknown setting 'a'"),
    "a bomb as value": (b"method: grpo\ntasks: [" + BOMB.replace("\n", "").encode() + b"]\n", "config.yaml|tasks"),
    "half a character": (b'method: grpo\nsystem_prompt: "a\\ud800"\n', "system_prompt must .* without lone surrogates"),
    "an unknown anchor": (b"method: *a\n", "line 1: "),
    "a method that is a list": (b"method: [grpo]\n", "unknown method"),
    "a method that is null": (b"method:\n", "unknown method None"),
}


@pytest.mark.parametrize("name", ODD_FILES)
def test_an_odd_file_is_refused_in_one_line(tmp_path, name):
    content, message = ODD_FILES[name]
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        recipes.load(tmp_path / "config.yaml")
    assert len(str(caught.value)) < 500 and "\n" not in str(caught.value)


def test_a_missing_file_is_named_and_so_is_a_folder_in_its_place(tmp_path):
    for path in (tmp_path / "config.yaml", tmp_path):
        with pytest.raises(ConfigError, match=f"{path.name} cannot be read"):
            recipes.load(path)


WORDS = st.sampled_from(
    [*FIELDS, *recipes.RECIPES, "[", "]", "{", "}", ": ", "\n", "- ", "&a ", "*a ", "!!int ", "!!binary ", "? ", "'",
     '"', "<<: ", "|\n ", "%YAML 9\n", "---\n", "1e999", ".nan", "0x1F", "1:60:60", "2026-01-01", "null", "\t", "#"]
)  # fmt: skip


@given(st.one_of(st.lists(st.one_of(WORDS, st.text(max_size=4))).map("".join).map(str.encode), st.binary(max_size=40)))
def test_whatever_a_file_holds_it_is_loaded_or_refused(content):
    with tempfile.NamedTemporaryFile() as file:
        for start in (b"", b"method: grpo\n"):
            Path(file.name).write_bytes(start + content)
            with contextlib.suppress(ConfigError):
                assert recipes.load(file.name).hash()


def test_a_notebook_shows_a_refused_setting_without_frames():
    cell = "from agpo_core.config import TrainConfig; TrainConfig(beta=-1)"
    words = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", cell]
    shown = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    lines = [line for line in (shown.stdout + shown.stderr).splitlines() if line.strip()]
    assert lines == ["ConfigError: beta must be 0 or more; got -1.0."]

"""The rules of warnings: each warns where it must, is silent just outside that case, and warns only once."""

import json
import re
import shutil

import pytest

from agpo_core import model_files, provenance
from agpo_core.recipes import resolve
from agpo_core.training import run_warnings
from agpo_core.training.run_warnings import RunWarnings
from agpo_core.training.train import train

QUIET = {"tau": 1.0, "epsilon": 0.2, "equal_groups": 0.5, "reward_std": 0.4, "dispersion_fallback": 0.0}


def rows(n, **changed):
    return [QUIET | changed for _ in range(n)]


def heard(rule, config, seen):
    return getattr(run_warnings, rule)(config, seen)


@pytest.mark.parametrize(
    ("rule", "config", "seen", "message"),
    [
        ("clip_is_inert", resolve("grpo", minibatches=1, epochs=1), [], "raise minibatches or epochs"),
        (
            "ratio_at_another_temperature",
            resolve("agpo", ratio_temperature="model"),
            rows(1, tau=1.2),
            "temperature 1.20",
        ),
        (
            "ratio_at_another_temperature",
            resolve("grpo", ratio_temperature="model", tau_base=0.6),
            [],
            "temperature 0.60",
        ),
        ("kl_noise_is_normalised", resolve("grpo", kl_estimator="k1", kl_placement="reward"), rows(1), "unit size"),
        (
            "kl_noise_is_normalised",
            resolve("mixed_scaling", kl_estimator="k1", kl_placement="reward"),
            rows(1),
            "unit size",
        ),
        ("kl_noise_is_normalised", resolve("reinforce_pp"), rows(1, reward_std=0.0), "unit size"),
        (
            "kl_noise_is_normalised",
            resolve("reinforce_pp_baseline", kl_estimator="k1", kl_placement="reward"),
            rows(1, equal_groups=1.0),
            "unit size",
        ),
        ("no_signal", resolve("grpo"), rows(5, equal_groups=1.0), "of every group were equal"),
        ("no_signal", resolve("reinforce_pp"), rows(5, reward_std=0.0, equal_groups=1.0), "all rewards were equal"),
        ("radius_is_pinned", resolve("agpo"), rows(4) + rows(6, epsilon=0.05), "epsilon_min in 60% of 10"),
        ("radius_is_pinned", resolve("agpo"), rows(4) + rows(6, epsilon=0.4), "raise epsilon_max"),
        ("dispersion_collapses", resolve("agpo_mad"), rows(10, dispersion_fallback=0.6), "mad was zero .* 60%"),
    ],
)
def test_a_rule_speaks_and_names_the_remedy(rule, config, seen, message):
    assert re.search(message, heard(rule, config, seen))


@pytest.mark.parametrize(
    ("rule", "config", "seen"),
    [
        ("clip_is_inert", resolve("grpo", minibatches=1, epochs=2), []),
        ("ratio_at_another_temperature", resolve("agpo"), rows(1, tau=1.2)),  # the ratio uses the same temperature
        ("ratio_at_another_temperature", resolve("agpo", ratio_temperature="model"), rows(1, tau=1.05)),
        ("kl_noise_is_normalised", resolve("grpo"), rows(1, equal_groups=1.0)),  # k3 as a loss
        (
            "kl_noise_is_normalised",
            resolve("reinforce_pp"),
            rows(1, equal_groups=1.0),
        ),  # a group of one is always equal
        ("kl_noise_is_normalised", resolve("rloo"), rows(1, equal_groups=1.0)),  # centred, never scaled
        ("no_signal", resolve("grpo"), rows(4, equal_groups=1.0)),
        ("no_signal", resolve("grpo"), rows(4, equal_groups=1.0) + rows(1)),
        ("no_signal", resolve("reinforce_pp"), rows(9, equal_groups=1.0)),
        ("radius_is_pinned", resolve("agpo"), rows(9, epsilon=0.05)),  # too few
        ("radius_is_pinned", resolve("agpo"), rows(5) + rows(5, epsilon=0.05)),  # half is not more than half
        ("radius_is_pinned", resolve("grpo"), rows(20, epsilon=0.05)),
        ("radius_is_pinned", resolve("agpo", epsilon_min=0.2, epsilon_max=0.2), rows(20)),  # fixed on purpose
        ("dispersion_collapses", resolve("agpo"), rows(20, dispersion_fallback=0.6)),
        ("dispersion_collapses", resolve("agpo_mad"), rows(20, dispersion_fallback=0.01)),
    ],
)
def test_a_rule_is_silent_where_nothing_is_wrong(rule, config, seen):
    assert heard(rule, config, seen) is None


def test_a_sentence_is_said_once():
    watching = RunWarnings(resolve("grpo"), rows(4, equal_groups=1.0))
    assert watching.see() == []
    ((rule, sentence),) = watching.see(QUIET | {"equal_groups": 1.0})
    assert rule == "no_signal" and "5 updates in a row" in sentence
    assert watching.see(QUIET | {"equal_groups": 1.0}) == []
    resumed = RunWarnings(resolve("grpo"), rows(6, equal_groups=1.0), said=[rule])
    assert resumed.see(QUIET | {"equal_groups": 1.0}) == []


def test_a_start_that_solves_nothing_is_spoken_of_once():
    seen = RunWarnings(resolve("grpo"))
    assert seen.see_start({"macro": 0.01}) == []
    ((rule, sentence),) = seen.see_start({"macro": 0.0})
    assert rule == "start_solves_nothing" and "tokenizer" in sentence
    assert seen.see_start({"macro": 0.0}) == []


def test_a_permuted_tokeniser_is_warned_of_by_the_start_s_own_score(tmp_path):
    place = shutil.copytree(model_files.model_source("tiny-qwen2-a"), tmp_path / "model")

    content = json.loads((place / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    names, ids = list(vocabulary)[3:], list(vocabulary.values())[3:]
    vocabulary.update(zip(names, ids[40:] + ids[:40], strict=True))
    (place / "tokenizer.json").write_text(json.dumps(content))
    said = {}
    for model in ("tiny-qwen2-a", str(place)):
        run_dir = tmp_path / f"run-{len(said)}"
        run_dir.mkdir()
        few = {"horizon": 0.0, "horizon_unit": "updates", "dev_problems": 20, "test_problems": 0}
        train(resolve("grpo", model=model, tasks=["choice_sums"], **few), run_dir)
        lines = run_dir / "warnings.jsonl"
        said[model] = [line["rule"] for line in provenance.read_jsonl(lines)] if lines.exists() else []
    assert said == {"tiny-qwen2-a": [], str(place): ["start_solves_nothing"]}

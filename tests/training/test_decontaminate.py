"""The setting `decontaminate`: what a run leaves out of its training problems, and where it says so."""

import pytest

from agpo_core import provenance
from agpo_core.config import ConfigError
from agpo_core.tasks import Problem
from agpo_core.training.problems import contaminated_problems, training_problems
from agpo_core.training.run import Run
from agpo_core.training.train import train

pytestmark = pytest.mark.usefixtures("toy_tasks", "fresh_accelerator")


@pytest.fixture
def evaluation_sets(monkeypatch, toy):
    """Tasks "leaky", with a test split that holds the training problems 3 and 7 of toy, "clean" and "copy"."""
    prompts = [problem.prompt for problem in toy.problems("train")]
    tests = {"leaky": [prompts[7].lower() + "?", "new", prompts[3]], "clean": ["new", "newer"], "copy": prompts}

    class Evaluation(type(toy)):
        def problems(self, split):
            assert split == "test"
            return [Problem(self.name, f"test-{i}", prompt, "") for i, prompt in enumerate(tests[self.name])]

    monkeypatch.setattr("agpo_core.tasks.decontamination.get_task", lambda name, *rest: Evaluation(name))


def test_training_problems_that_stand_in_an_evaluation_set_are_left_out(config, toy, evaluation_sets, tmp_path, capsys):
    run = Run(config(decontaminate=["leaky", "clean"]), tmp_path)
    kept = [problem.id for problem in run.pools["toy"]]
    assert kept == [problem.id for i, problem in enumerate(toy.problems("train")) if i not in (3, 7)]
    assert provenance.read_json(tmp_path / "decontamination.json") == {
        "toy": {"leaky:test": ["train-3", "train-7"], "clean:test": []}
    }
    assert "toy: 2 training problems stand in leaky:test, clean:test and are left out." in capsys.readouterr().out
    drawn = {problem.id for update in range(12) for problem in run.sampler.prompts(update).problems}
    assert drawn == set(kept)  # 48 prompts walk the 22 problems twice


def test_without_the_setting_nothing_is_left_out_nor_written(config, toy, tmp_path, capsys):
    run = Run(config(), tmp_path)
    assert run.pools["toy"] == toy.problems("train")
    assert not (tmp_path / "decontamination.json").exists() and "left out" not in capsys.readouterr().out


def test_few_training_problems_are_drawn_from_those_that_are_left(config, toy, evaluation_sets):
    c = config(decontaminate=["leaky"], train_problems=22)
    forbidden = {("toy", i) for i in contaminated_problems(c, {"toy": toy})["toy"]["leaky:test"]}
    pool = training_problems(c, {"toy": toy}, forbidden)["toy"]
    assert len(pool) == 22 and not {"train-3", "train-7"} & {problem.id for problem in pool}
    with pytest.raises(ConfigError, match="'toy' has 22 train problems, 23 were asked for"):
        training_problems(c.replace(train_problems=23), {"toy": toy}, forbidden)


def test_a_task_that_loses_all_its_problems_raises(config, evaluation_sets, tmp_path):
    with pytest.raises(ConfigError, match="decontaminate: every training problem of toy stands in copy:test too"):
        train(config(decontaminate=["copy"]), tmp_path)


def test_an_unknown_split_raises(config, toy, evaluation_sets):
    with pytest.raises(ValueError, match="'leaky:valid' names the split 'valid'"):
        contaminated_problems(config(decontaminate=["leaky:valid"]), {"toy": toy})

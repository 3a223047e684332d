"""What tests of several packages share: random tiny models, a task to train on, small runs."""

import hypothesis
import pytest
import torch

from agpo_core.config import TrainConfig
from agpo_core.recipes import RECIPES, resolve
from agpo_core.tasks import Graded, Problem
from agpo_core.tasks.tools import Calculator, Reply, Tool

hypothesis.settings.register_profile("patient", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("patient")

FAMILIES = ("qwen2", "llama", "gemma2")


class Toy:
    """A completion is right when the code of its first character is even.

    A random policy is right about every second time, so that groups differ and there is something
    to learn from the first update on. The answer, the vote key, is that character.
    """

    title = "Even first characters"
    stands_in_for = "nothing"
    sizes = {"train": 24, "dev": 6, "test": 8}

    def __init__(self, name="toy"):
        self.name = name

    def problems(self, split):
        prompts = ["ABCDEFGH"[: 1 + i % 5] + str(i) for i in range(self.sizes[split])]
        return [Problem(self.name, f"{split}-{i}", p, "") for i, p in enumerate(prompts)]

    def grade(self, problem, completion):
        if not completion:
            return Graded(0.0, None)
        return Graded(float(ord(completion[0]) % 2 == 0), completion[0])


class Sums(Toy):
    """The toy task with a calculator."""

    tool = Calculator()


class Echo(Tool):
    """A turn of `least` characters or more that ends with one of `ends` is a call. Its reply is its own text.

    Half of all characters are in `ends`, so random policies call the tool. A call of just `least` characters fails.
    """

    observation_marks = ("=", ";")
    ends = {chr(i) for i in range(32, 0x10000) if i % 2}

    def __init__(self, least=1):
        self.least = least

    def call(self, text):
        return text if len(text) >= self.least and text[-1:] in self.ends else None

    def run(self, calls):
        return [Reply(call, failed=len(call) == self.least) for call in calls]


def random_model(family, seed=0):
    """An untrained model whose next token depends on the context, and its tokenizer.

    With fresh weights, which are too small, the model repeats the last token, nearly uniformly. So the weights are
    scaled up, those of end-of-sequence most: about a third of the completions end by themselves.
    """
    from agpo_core.models.tiny_models import character_tokenizer, new_model

    tokenizer = character_tokenizer(family)
    model = new_model(family, tokenizer, seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2:
                weight *= 3.0 if "embed" in name else 4.0
        model.get_input_embeddings().weight[tokenizer.eos_token_id] *= 3.0
    return model, tokenizer


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """One thread: the same rounding on any number of cores, and no waiting between processes."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_folders(tmp_path_factory):
    """A random model of each family in a folder: {family: path}."""
    folders = {}
    for family in FAMILIES:
        folders[family] = str(tmp_path_factory.mktemp(family))
        for part in random_model(family):
            part.save_pretrained(folders[family])
    return folders


@pytest.fixture(scope="session")
def config(model_folders):
    """Build the configuration of a small run on the toy task: config("agpo", horizon=2.0)."""

    def build(method="grpo", family="qwen2", **params) -> TrainConfig:
        small = {
            "model": model_folders[family],
            "tasks": ["toy"],
            "horizon_unit": "updates",
            "horizon": 3.0,
            "prompts_per_update": 4,
            "group_size": 4,
            "minibatches": 2,
            "max_completion_tokens": 6,
            "learning_rate": 1.0e-3,
            "dev_problems": 4,
            "test_problems": 4,
        }
        return resolve(method, **{**small, **RECIPES[method].settings, **params})

    return build


@pytest.fixture
def toy():
    return Toy()


@pytest.fixture(scope="module")
def toy_tasks():
    """Let the loop find the toy task under any name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agpo_core.training.run.get_task", lambda name, *rest: Toy(name))
        yield


@pytest.fixture
def fresh_accelerator():
    """Forget the process-wide state of accelerate, which fixes the precision of the first run."""
    from accelerate.state import AcceleratorState, GradientState

    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()

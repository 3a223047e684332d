"""The tokens that a model reads and that end its turn are the same on every path, for any tokenizer and template."""

import dataclasses
import re
from pathlib import Path

import pytest
import torch

from agpo_core import provenance
from agpo_core.config import ConfigError, TrainConfig
from agpo_core.evaluation import evaluation_run, memorisation
from agpo_core.rollouts import rollout
from agpo_core.rollouts.prompts import PromptFormat, token_ids
from agpo_core.rollouts.rollout import TransformersEngine, VLLMEngine
from agpo_core.tasks import Problem
from agpo_core.training import baselines
from agpo_core.training.reward_model import _sequences
from tests.conftest import Toy
from tests.rollouts.chats import CHATS, Chat, folder_of, model_of, tokenizer_of

TEMPLATES = [name for name, chat in CHATS.items() if chat.template and name != "as_text"]
PROMPTS = ["What is 2 + 3?", "ab", "  the end \n"]
PROBLEMS = [Problem("toy", str(i), prompt, "") for i, prompt in enumerate(PROMPTS)]


def engine_of(name, **params):
    tokenizer = tokenizer_of(name)
    params = {"model": name, "max_completion_tokens": 8} | params
    model = model_of(tokenizer, CHATS[name].end or CHATS[name].eos)
    return TransformersEngine(model, tokenizer, TrainConfig(**params))


def read(engine, problems=PROBLEMS):
    """The tokens that the policy reads, without padding."""
    prompts = engine.encode(problems, list(range(len(problems))))
    return [ids[mask.bool()].tolist() for ids, mask in zip(prompts.prompt_ids_P_S, prompts.prompt_mask_P_S)]


# -- what is read


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_chat_model_reads_the_tokens_of_its_template(name):
    engine = engine_of(name)
    expected = [
        engine.tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], add_generation_prompt=True, return_dict=False
        )
        for prompt in PROMPTS
    ]
    assert read(engine) == expected
    bos = engine.tokenizer.bos_token_id
    for ids in expected:
        assert bos is None or ids.count(bos) == ("bos_token" in CHATS[name].template)
    engine.config = dataclasses.replace(engine.config, max_sequence_tokens=len(expected[1]) + 8)
    assert engine.fits(PROBLEMS) == [len(ids) <= len(expected[1]) for ids in expected]


@pytest.mark.parametrize("name", [name for name in TEMPLATES if CHATS[name].system])
@pytest.mark.parametrize("system", ["Answer in one word.", ""])
def test_a_system_prompt_is_the_first_message(name, system):
    engine = engine_of(name, system_prompt=system)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": PROMPTS[0]}]
    expected = engine.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert read(engine)[0] == expected


@pytest.mark.parametrize("value", ["true", "false"])
def test_template_arguments_reach_the_template(value):
    engine = engine_of("thinking", template_arguments=[f"enable_thinking={value}"])
    expected = engine.tokenizer.apply_chat_template(
        [{"role": "user", "content": PROMPTS[0]}], add_generation_prompt=True, return_dict=False,
        enable_thinking=value == "true",
    )  # fmt: skip
    assert read(engine)[0] == expected
    assert (engine.tokenizer.decode(expected).count("think") == 2) == (value == "false")


@pytest.mark.parametrize("name", CHATS)
def test_as_text_a_prompt_has_one_bos_before_it_and_nothing_after_it(name):
    engine = engine_of(name, chat_template="never")
    tokenizer = engine.tokenizer
    bos = [tokenizer.bos_token_id] * CHATS[name].around.startswith("<")
    problems = [*PROBLEMS, Problem("toy", "3", f"{tokenizer.bos_token or ''}x", "")]  # this text may begin with BOS
    for problem, ids in zip(problems, read(engine, problems), strict=True):
        text = problem.prompt.removeprefix(tokenizer.bos_token or "")
        assert ids == bos + tokenizer(text, add_special_tokens=False)["input_ids"] or not bos
        assert ids.count(tokenizer.bos_token_id) <= 1


def test_a_tokenizer_without_a_fast_backend_does_not_close_a_prompt_either():
    from transformers import ByT5Tokenizer

    tokenizer = ByT5Tokenizer()
    assert tokenizer("ab")["input_ids"][-1] == tokenizer.eos_token_id
    assert token_ids(tokenizer, ["ab"], rendered=False) == [tokenizer("ab", add_special_tokens=False)["input_ids"]]


def test_a_prompt_without_tokens_is_refused():
    with pytest.raises(ConfigError, match="no tokens"):
        engine_of("no_bos").encode([Problem("toy", "0", "", "")], [0])


@pytest.mark.parametrize("name", ["llama3", "mistral", "chatml", "bare", "closes", "no_template"])
def test_every_path_reads_what_the_policy_reads_and_ends_with_what_ends_its_turn(name, monkeypatch):
    engine = engine_of(name)
    tokenizer, prompts = engine.tokenizer, read(engine)
    end = tokenizer.convert_tokens_to_ids(CHATS[name].end or CHATS[name].eos)
    answer = tokenizer("the", add_special_tokens=False)["input_ids"]
    seen = {}

    def caught(rows):
        seen["rows"] = rows
        raise InterruptedError

    monkeypatch.setattr("datasets.Dataset.from_list", caught)
    with pytest.raises(InterruptedError):
        baselines.sft(engine.model, tokenizer, [(p, "the") for p in PROMPTS], batch_size=1, learning_rate=1.0)
    for row, prompt in zip(seen["rows"], prompts, strict=True):
        assert row == {"input_ids": [*prompt, *answer, end], "labels": [-100] * len(prompt) + [*answer, end]}

    engine.model.config.num_labels = 1
    texts = engine.texts_of(PROBLEMS)
    with pytest.raises(InterruptedError):
        baselines.reward_model(
            engine.model, tokenizer, [(t, "the", "ab") for t in texts], batch_size=1, learning_rate=1.0
        )
    assert [row["chosen_ids"] for row in seen["rows"]] == [[*prompt, *answer, end] for prompt in prompts]

    encoded = engine.encode(PROBLEMS, [0, 1, 2])
    found = engine.sample(encoded, engine.open(encoded), 4, torch.ones(3), "train", 0)
    for i, row in enumerate(_sequences(found)):  # what a reward model scores
        assert list(row[: len(prompts[i // 4])]) == prompts[i // 4]


# -- what ends a turn


@pytest.mark.parametrize("name", [name for name in CHATS if name != "as_text"])
def test_the_template_s_end_of_turn_is_a_stop_token(name):
    tokenizer = tokenizer_of(name)
    form = PromptFormat(tokenizer, TrainConfig(model=name))
    own = {tokenizer.eos_token_id}
    ends = {tokenizer.convert_tokens_to_ids(CHATS[name].end)} if CHATS[name].end else set()
    assert set(form.stop_ids()) == own | ends
    off = PromptFormat(tokenizer, TrainConfig(model=name, chat_template="never"))
    assert off.stop_ids() == [tokenizer.eos_token_id]


PUBLISHED = {  # templates of released models, which TRL brings along: what ends a turn
    "cohere": "<|END_OF_TURN_TOKEN|>",
    "deepseekv3": "<｜end▁of▁sentence｜>",
    "gemma": "<end_of_turn>",
    "gemma3": "<end_of_turn>",
    "glm4moe": "<|user|>",
    "gptoss": "<|return|>",
    "lfm2": "<|im_end|>",
    "llama3_2": "<|eot_id|>",
    "phi3": "<|end|>",
    "qwen2_5": "<|im_end|>",
    "qwen3": "<|im_end|>",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_end_of_turn_of_published_templates_is_found(name):
    import trl

    template = (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")
    marks = dict.fromkeys(re.findall(r"<[|｜][^<>{}'\"%]*[|｜]>|<(?:start|end)_of_turn>", template))
    tokenizer = tokenizer_of(Chat(template, "<s>", "</s>", tuple(marks)))
    form = PromptFormat(tokenizer, TrainConfig(model=name))
    assert tokenizer.convert_ids_to_tokens(form.turn_ends) == [PUBLISHED[name]]
    expected = tokenizer.apply_chat_template(
        [{"role": "user", "content": "ab"}], add_generation_prompt=True, return_dict=False
    )
    assert form.ids(form.texts(["ab"])) == [expected]


@pytest.mark.parametrize("name", ["chatml", "llama3", "gemma", "phi", "headers"])
def test_a_completion_ends_with_its_turn(name):
    engine = engine_of(name)
    prompts = engine.encode(PROBLEMS, [0, 1, 2])
    found = engine.sample(prompts, engine.open(prompts), 16, torch.ones(3), "train", 0)
    end, stops = engine.tokenizer.convert_tokens_to_ids(CHATS[name].end), set(engine.stop_ids.tolist())
    ended = 0
    for ids, mask, cut, text in zip(
        found.completion_ids_B_T, found.mask_B_T, found.truncated_B.tolist(), found.texts, strict=True
    ):
        *inner, last = ids[mask].tolist()
        assert not stops & set(inner) and cut == (last not in stops)
        assert CHATS[name].end not in text
        ended += last == end
    assert ended > 5
    without = engine_of(name, chat_template="never")  # the same model in plain text: the mark is a token like any other
    assert end not in without.stop_ids


def test_stop_tokens_are_texts_of_tokens_and_reach_both_engines(monkeypatch):
    engine = engine_of("chatml", stop_tokens=["\n", "ab", "<|im_start|>"])
    tokenizer = engine.tokenizer
    expected = {tokenizer.convert_tokens_to_ids(t) for t in ("\n", "ab", "<|im_start|>", "<|im_end|>", "<|endoftext|>")}
    assert set(engine.stop_ids.tolist()) == expected
    given = []
    monkeypatch.setattr(rollout, "VLLM", lambda model, config, stop_ids, *rest: given.append(stop_ids))
    VLLMEngine(engine.model, tokenizer, engine.config)
    assert given == [sorted(expected)]


def test_a_template_that_closes_a_turn_with_text_is_refused_unless_a_stop_token_is_named():
    with pytest.raises(ConfigError, match="closes a turn with '<~im_end|>', which is not one token"):
        engine_of("as_text")
    engine_of("as_text", stop_tokens=["~"])
    engine_of("as_text", chat_template="never")


# -- what is refused, when the model is loaded

DROPS_SYSTEM = "{% for m in messages if m['role'] != 'system' %}{{ m['content'] }}{% endfor %}"


@pytest.mark.parametrize(
    ("name", "template", "params", "message"),
    [
        ("gemma", None, {"system_prompt": "Be brief."}, "cannot render a system message.*no system role"),
        ("bare", DROPS_SYSTEM, {"system_prompt": "Be brief."}, "leaves out a system message"),
        ("bare", "{{ messages[0].content[0].text }}{{ 1 / 0 }}", {}, "cannot render a user's message"),
        ("bare", "{% if %}", {}, "cannot render a user's message"),
        ("bare", "{{ raise_exception('no\nway') }}", {}, "cannot render a user's message.*no way"),
        ("bare", "{{ bos_token }}", {}, "leaves out a user's message"),
        ("no_template", None, {"chat_template": "always"}, "has no chat template"),
        ("no_template", None, {"system_prompt": "Be brief."}, "has no chat template"),
        ("no_template", None, {"template_arguments": ["x=1"]}, "has no chat template"),
        ("thinking", None, {"template_arguments": ["enable_thinkin=false"]}, "does not read 'enable_thinkin'"),
        ("thinking", None, {"template_arguments": ["tokenize=true"]}, "does not read 'tokenize'"),
        ("chatml", None, {"stop_tokens": ["\n", "user"]}, "'user' is not one token"),
        ("no_template", None, {"stop_tokens": ["<|im_end|>"]}, "'<|im_end|>' is not one token"),
    ],
)
def test_what_the_template_or_the_tokenizer_cannot_do_is_refused(name, template, params, message):
    tokenizer = tokenizer_of(name)
    tokenizer.chat_template = template or tokenizer.chat_template
    with pytest.raises(ConfigError, match=message.replace("|", r"\|")) as caught:
        PromptFormat(tokenizer, TrainConfig(model=name, **params))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("failure", ["raise_exception('no\nway')", "1 / 0", "messages.nothing.at.all"])
def test_a_prompt_that_the_template_cannot_render_is_named(failure):
    tokenizer = tokenizer_of("bare")
    picky = "{% if '=' in messages[0].content %}{{ " + failure + " }}{% endif %}{{ messages[0].content }}"
    tokenizer.chat_template = picky
    form = PromptFormat(tokenizer, TrainConfig(model="bare"))
    assert form.texts(["ab"]) == ["ab"]
    with pytest.raises(ConfigError, match="cannot render the prompt '1 = 1'") as caught:
        form.texts(["ab", "1 = 1"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "params",
    [
        {"template_arguments": ["enable_thinking"]},
        {"template_arguments": ["enable_thinking=no"]},
        {"template_arguments": ["=1"]},
        {"template_arguments": ["a=1", "a=2"]},
        {"stop_tokens": [""]},
        {"chat_template": "never", "system_prompt": ""},
        {"chat_template": "never", "template_arguments": ["a=1"]},
        {"chat_template": "off"},
        {"chat_template": False},  # YAML's reading of off
    ],
)
def test_settings_that_say_nothing_are_refused_at_once(params):
    (name, *_) = params
    with pytest.raises(ConfigError, match=name):
        TrainConfig(**params)


def test_arguments_are_json_values():
    texts = ["a=false", 'b="low"', "c=[1, 2]", "d=null"]
    assert TrainConfig(template_arguments=texts).template_values == {"a": False, "b": "low", "c": [1, 2], "d": None}


# -- evaluation


@pytest.fixture
def evaluated(tmp_path, monkeypatch):
    """Evaluate the toy task with a saved chat model; returns the lines."""
    monkeypatch.setattr(evaluation_run, "get_task", lambda name, *rest: Toy(name))
    monkeypatch.setattr(provenance, "git_commit", lambda: "0" * 40)

    def build(name, **params):
        settings = evaluation_run.Settings(
            folder_of(name, tmp_path / name), ("toy",), max_new_tokens=8, k=4, temperature=1.0, **params
        )
        out = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
        evaluation_run.run(settings, out, ["python"])
        return provenance.read_jsonl(out / "problems.jsonl")

    return build


def test_evaluation_asks_and_ends_as_training_does(evaluated):
    params = {"system_prompt": "Be brief.", "template_arguments": ("enable_thinking=false",), "stop_tokens": ("\n",)}
    lines = evaluated("thinking", **params)
    engine = engine_of("thinking", **params)
    assert [line["prompt"] for line in lines] == engine.texts_of(Toy().problems("test"))
    texts = [text for line in lines for text in line["completions"]]
    assert not any("<|im_end|>" in text or "\n" in text for text in texts)
    assert not all(cut for line in lines for cut in line["truncated"])
    plain = evaluated("thinking", template="base")
    assert [line["prompt"] for line in plain] == [problem.prompt for problem in Toy().problems("test")]
    with pytest.raises(ConfigError, match="template base: system_prompt"):
        evaluated("thinking", template="base", system_prompt="Be brief.")
    with pytest.raises(ConfigError, match="no chat template"):
        evaluated("no_bos", system_prompt="Be brief.")


def test_the_command_line_takes_the_same_settings(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(evaluation_run, "run", lambda settings, *rest: seen.append(settings) or 1 / 0)
    words = ["--model", "m", "--tasks", "toy", "--system-prompt", "Be brief.", "--template-argument", "a=1",
             "--template-argument", "b=2", "--stop-token", "\n", "--out", str(tmp_path)]  # fmt: skip
    with pytest.raises(ZeroDivisionError):
        evaluation_run.main(words)
    (settings,) = seen
    assert (settings.system_prompt, settings.template_arguments, settings.stop_tokens) == (
        "Be brief.", ("a=1", "b=2"), ("\n",),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["closes", "llama3"])
def test_letters_and_memorisation_read_one_bos_and_no_end(name, monkeypatch):
    engine = engine_of(name)
    fed = []
    prefill = rollout.prefill

    def keep(model, ids_P_S, mask_P_S, **wanted):
        fed.extend(ids[mask.bool()].tolist() for ids, mask in zip(ids_P_S, mask_P_S))
        return prefill(model, ids_P_S, mask_P_S, **wanted)

    monkeypatch.setattr(rollout, "prefill", keep)
    monkeypatch.setattr(evaluation_run, "prefill", keep)
    tokenizer = engine.tokenizer
    memorisation.probe(engine.model, tokenizer, ["the cat sat"], TrainConfig(model=name, chat_template="never"))
    evaluation_run.letter_logps(engine.model, tokenizer, ["Answer:"], chat=False)
    for ids, text in zip(fed, ["the c", "Answer: "], strict=True):
        assert ids == [tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"]]

"""The memorisation probe: the cut, the reproduced part, models that know the texts and models that do not."""

import json
import re

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agpo_core import sandbox
from agpo_core.config import ConfigError, TrainConfig
from agpo_core.evaluation import memorisation
from agpo_core.evaluation.memorisation import (
    common_characters,
    first_questions,
    main,
    table,
    truncate,
)
from agpo_core.models.tiny_models import character_tokenizer, new_model
from agpo_core.tasks import get_task

TEXTS = [
    "Wren has 31 blue jars",
    "Kit ate 8 of 52 figs",
    "Zoe: 77 keys + 4 nuts?",
    "9*8+7*6-5*4=?",
    "Quiz: who met Jan first",
    "小明有九张纸，用三，得",
    "Only Max saw 60 owls fly",
    "Fix 2 locks, sell 3 caps",
]


def probe(model, tokenizer, texts, seed=42, **settings):
    return memorisation.probe(model, tokenizer, texts, TrainConfig(seed=seed), **settings)


@pytest.fixture(scope="module")
def parrot():
    """A tiny model that was trained on TEXTS until it knows them by heart, and its tokenizer."""
    tokenizer = character_tokenizer()
    model = new_model("qwen2", tokenizer, seed=0)
    batch = tokenizer([text + tokenizer.eos_token for text in TEXTS], padding=True, return_tensors="pt")
    ids_B_T, mask_B_T = batch["input_ids"], batch["attention_mask"]
    labels_B_T = ids_B_T.masked_fill(mask_B_T == 0, -100)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5.0e-3)
    for _ in range(80):
        model(input_ids=ids_B_T, attention_mask=mask_B_T, labels=labels_B_T).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    return model, tokenizer


@pytest.fixture
def fresh():
    """The same model and tokenizer before training."""
    tokenizer = character_tokenizer()
    return new_model("qwen2", tokenizer, seed=0), tokenizer


@pytest.fixture(scope="module")
def bytes_tokenizer():
    """One token a byte: a Chinese character is three."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {symbol: i for i, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


# -- where a text is cut


@pytest.mark.parametrize(
    ("shown", "start"),
    [(0.5, "ABC"), (0.25, "A"), (0.34, "AB"), (0.01, "A"), (0.99, "ABCDE")],  # of 6 tokens: 3, 1.5, 2.04, .06, 5.94
)
def test_a_share_of_the_tokens_is_shown_and_at_least_one_on_either_side(shown, start):
    assert truncate(character_tokenizer(), "ABCDEF", shown) == (start, "ABCDEF"[len(start) :])


def test_a_character_of_several_tokens_is_not_torn(bytes_tokenizer):
    assert truncate(bytes_tokenizer, "小明红", 0.5) == ("小明", "红")  # 4 of 9 tokens end within the second


@given(st.text(min_size=2, max_size=20), st.floats(0.01, 0.99))
def test_start_and_rest_are_the_text(bytes_tokenizer, text, shown):
    try:
        start, rest = truncate(bytes_tokenizer, text, shown)
    except ValueError:
        assert len(text.encode()) > len(text)  # the cut would be within the last character
    else:
        assert start and rest and start + rest == text


@pytest.mark.parametrize("text", ["", "A"])
def test_a_text_of_fewer_than_two_tokens_is_refused(text):
    with pytest.raises(ValueError, match=f"the text '{text}' has too few tokens to be cut"):
        truncate(character_tokenizer(), text, 0.5)


# -- what counts


@pytest.mark.parametrize(
    ("completion", "rest", "expected"),
    [
        ("pens has Tom", "pens has Tom", (12, 12)),
        ("pens has Tom? And Ann", "pens has Tom", (12, 12)),  # goes on
        ("pens has Tim", "pens has Tom", (10, 12)),
        ("pens", "pens has Tom", (4, 12)),
        (" pens", "pens", (4, 4)),
        ("pens", "\npens", (4, 4)),
        ("pen s", "pens", (3, 4)),
        ("Pens", "pens", (0, 4)),
        ("", "pens", (0, 4)),
    ],
)
def test_the_common_prefix_is_counted_in_characters(completion, rest, expected):
    assert common_characters(completion, rest) == expected


def test_a_model_trained_on_the_texts_knows_them_all(parrot):
    lines = probe(*parrot, TEXTS)
    assert [line["memorised"] for line in lines] == [True] * 8
    assert [line["prefix"] for line in lines] == [line["characters"] for line in lines]
    # "Wren has 3|1 blue jars": 10 of 21 characters are shown
    assert lines[0] == {"tokens": 11, "characters": 11, "prefix": 11, "memorised": True, "too_long": False}


def test_a_fresh_model_knows_none(fresh):
    assert not any(line["memorised"] for line in probe(*fresh, TEXTS))


def test_the_model_knows_no_text_but_those_it_was_trained_on(parrot):
    changed = ["Wren has 31 pink figs", "Kit ate 8 of 19 jars", "Only Max saw 44 cats run"]
    lines = probe(*parrot, changed)
    assert not any(line["memorised"] for line in lines)
    # "Wren has 3|1 pink figs": it writes "1 blue jars", of which "1 " is right
    assert lines[0]["prefix"] == 2 and lines[0]["characters"] == 11


def test_without_temperature_the_seed_does_not_matter_and_with_it_it_does(parrot):
    def found(**settings):
        return [line["prefix"] for line in probe(*parrot, TEXTS, shown=0.2, **settings)]

    assert found(temperature=0.0, seed=1) == found(temperature=0.0, seed=2)
    assert found(temperature=3.0, seed=1) == found(temperature=3.0, seed=1) != found(temperature=3.0, seed=2)


def test_a_chat_template_is_not_used_and_stays(parrot):
    model, tokenizer = parrot
    expected = probe(model, tokenizer, TEXTS)
    tokenizer.chat_template = "{% for m in messages %}Question: {{ m['content'] }}{% endfor %}"
    try:
        assert probe(model, tokenizer, TEXTS) == expected
        assert tokenizer.chat_template is not None
    finally:
        tokenizer.chat_template = None


def test_texts_that_do_not_fit_are_left_out_and_said_to_be_too_long(parrot):
    few = probe(*parrot, TEXTS)
    lines = probe(*parrot, ["A" * 65, *TEXTS[:4], "B" * 80, *TEXTS[4:]])
    assert lines[1:5] + lines[6:] == few
    assert lines[0] == {"tokens": 33, "characters": 33, "prefix": None, "memorised": None, "too_long": True}  # 65 - 32
    assert lines[5]["too_long"] and not probe(*parrot, ["A" * 64])[0]["too_long"]


def test_many_texts_are_those_of_few(parrot):
    few = probe(*parrot, TEXTS, temperature=0.0)
    assert probe(*parrot, TEXTS * 9, temperature=0.0) == few * 9  # more texts than are decoded together


def test_a_text_s_sample_does_not_depend_on_the_others(parrot):
    def found(texts):
        return probe(*parrot, texts, shown=0.2, temperature=3.0)

    assert found(TEXTS)[3:] == found(TEXTS[3:])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shown": 0.0}, "shown=0.0 must lie between 0 and 1"),
        ({"shown": 1.0}, "shown=1.0 must lie between 0 and 1"),
        ({"temperature": -0.1}, "temperature=-0.1 must be 0 or more"),
        ({"temperature": float("nan")}, "temperature=nan must be 0 or more"),
        ({"seed": -1}, r"seed must be in \[0, 2\*\*31\)"),
        ({"texts": ["A" * 66, "A" * 65]}, "none fits into the model's context of 64 tokens, the shortest has 65"),
        ({"texts": ["A"]}, "too few tokens"),
    ],
)
def test_what_cannot_be_probed_raises(fresh, settings, message):
    with pytest.raises(ValueError, match=message):
        probe(*fresh, **{"texts": TEXTS, **settings})


# -- the table and the command


def test_the_table_holds_shares_interval_and_prefixes():
    def line(task, prefix, characters):
        too_long = prefix is None
        memorised = None if too_long else prefix == characters
        return {"task": task, "prefix": prefix, "characters": characters, "memorised": memorised, "too_long": too_long}

    lines = [*[line("a", 10, 10)] * 50, *[line("a", 0, 10)] * 45, *[line("a", 5, 10)] * 5, line("b", 1, 4)]
    a, b, c = table([*lines, line("a", None, 99), line("c", None, 99)]).to_dict("records")
    assert (a["too_long"], b["too_long"], c["too_long"]) == (1, 0, 1)  # and not in the shares below
    assert (
        c["n"] == 0 and pd.isna([c[name] for name in ("memorised", "low", "high", "prefix_mean", "prefix_max")]).all()
    )
    assert (a["task"], a["n"], a["memorised"], a["prefix_median"], a["prefix_max"]) == ("a", 100, 0.5, 0.75, 1.0)
    assert a["prefix_mean"] == pytest.approx(0.525)  # (50 + 5 / 2) / 100
    assert a["low"] == pytest.approx(0.4, abs=0.011) and a["high"] == pytest.approx(0.6, abs=0.011)  # ± 1.96 * .05
    assert (b["n"], b["memorised"], b["prefix_mean"]) == (1, 0.0, 0.25) and pd.isna(b["low"]) and pd.isna(b["high"])


def test_a_task_gives_its_first_questions_without_the_instruction(tmp_path):
    rows = [{"question": f"How many?\nA{i}\n", "answer": f"#### {i}"} for i in range(201)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = first_questions("gsm8k", "dev", 2, tmp_path)
    assert [(p.id, p.prompt) for p in found] == [("train-1", "A1"), ("train-2", "A2")]
    with pytest.raises(ConfigError, match="gsm8k has 200 dev problems, 201 were asked for"):
        first_questions("gsm8k", "dev", 201, tmp_path)


def folder_of(problems, where):
    """A folder with GSM8K's training file."""
    rows = [{"question": f"What is 7 * {i}?", "answer": f"#### {7 * i}"} for i in range(problems)]
    where.mkdir()
    (where / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return where


def test_the_command_writes_lines_without_text_the_table_and_the_circumstances(tmp_path, capsys):
    data, out = folder_of(201, tmp_path / "data"), tmp_path / "out"
    arguments = ["--model", "tiny-qwen2-a", "--tasks", "steps,gsm8k", "--problems", "3", "--dtype", "bfloat16"]
    arguments += ["--data-dir", str(data), f"--out={out}"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out.splitlines()
    lines = [json.loads(line) for line in (out / "memorisation.jsonl").read_text().splitlines()]
    ids = [(name, p.id) for name in ("steps", "gsm8k") for p in get_task(name, data).problems("dev")[:3]]
    assert [(line["task"], line["id"]) for line in lines] == ids
    assert set(lines[0]) == {"task", "id", "tokens", "characters", "prefix", "memorised", "too_long"}
    assert [row.split()[:2] for row in printed[1:]] == [["steps", "3"], ["gsm8k", "3"]]
    pd.testing.assert_frame_equal(pd.read_csv(out / "table.csv"), table(lines))
    run = json.loads((out / "run.json").read_text())
    assert run["command"].startswith("python -m agpo_core.evaluation.memorisation --model tiny-qwen2-a --tasks steps,")
    assert (run["model"], run["split"], run["shown"], run["temperature"]) == ("tiny-qwen2-a", "dev", 0.5, 0.1)
    assert (run["status"], run["exit_status"], run["dtype"], run["seed"]) == ("finished", 0, "bfloat16", 42)
    assert str(tmp_path) not in (out / "run.json").read_text()
    with pytest.raises(SystemExit):
        main(arguments)
    assert re.search("is not empty; give another folder", capsys.readouterr().err)


def test_all_tasks_share_one_engine_of_the_dtype_and_model_asked_for(tmp_path, monkeypatch):
    made = []

    def make(model, tokenizer, config):
        made.append((model.dtype, config.dtype, config.model, config.seed))
        return engine(model, tokenizer, config)

    engine = memorisation.make_engine
    monkeypatch.setattr(memorisation, "make_engine", make)
    options = ["--problems", "2", "--dtype", "bfloat16", "--seed", "7", "--out", str(tmp_path)]
    main(["--model", "tiny-llama", "--tasks", "steps,equations", *options])
    assert made == [(torch.bfloat16, "bfloat16", "tiny-llama", 7)]


def test_a_probe_that_fails_says_so_and_its_folder_can_be_used_again(tmp_path, capsys):
    arguments = ["--model", "tiny-qwen2-a", "--tasks", "steps", "--problems", "2", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--shown", "2"])
    message = "shown=2.0 must lie between 0 and 1"
    assert stop.value.code == 2 and message in capsys.readouterr().err
    run = json.loads((tmp_path / "run.json").read_text())
    assert (run["status"], run["exit_status"]) == ("failed", 1) and f"ConfigError: {message}" in run["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert main(arguments) == 0
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "finished"


def test_a_machine_without_a_sandbox_is_told_what_to_do_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sandbox, "missing", lambda weak: ("start: no user namespaces",))
    monkeypatch.delenv(sandbox.WEAK_VARIABLE, raising=False)
    with pytest.raises(SystemExit) as stop:
        main(["--model", "tiny-qwen2-a", "--tasks", "gsm8k_python", "--out", str(tmp_path / "out")])
    [line] = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2 and "no user namespaces" in line and "AGPO_WEAK_SANDBOX=1" in line


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--tasks", "chess"], "unknown task 'chess'"),
        (["--problems", "0"], "problems=0 must be 1 or more"),
        (["--out", __file__], "is a file; give a folder"),
        (["--seed", "-1"], "seed must be in [0, 2**31)"),
        (["--model", "tests"], "model 'tests' could not be loaded"),  # a folder without a model
    ],
)
def test_a_probe_that_cannot_be_made_says_why_and_writes_nothing(tmp_path, capsys, change, message):
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as stop:
        main(["--model", "tiny-qwen2-a", "--tasks", "steps", "--problems", "2", "--out", str(out), *change])
    assert stop.value.code == 2 and message in capsys.readouterr().err and not out.exists()

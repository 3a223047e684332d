"""A whole evaluation: the same lines for any batch, ranks and interruptions; the table; the record."""

import dataclasses
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from accelerate import Accelerator
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from agpo_core import paths, provenance, sandbox
from agpo_core.config import ConfigError
from agpo_core.evaluation import evaluation_run as module
from agpo_core.evaluation.evaluate import complete_and_grade
from agpo_core.evaluation.evaluation_run import Settings, first, letter_logps, main, promote, refuse_dirty, run
from agpo_core.rollouts.loading import load_policy
from agpo_core.rollouts.rollout import TransformersEngine
from agpo_core.tasks import Problem
from agpo_core.tasks.benchmarks.table import MMLU_SUBJECTS
from tests.conftest import Toy, random_model

pytestmark = [
    pytest.mark.usefixtures("fresh_accelerator"),
    pytest.mark.filterwarnings("ignore:.*test records are here"),
]
COMMIT = "a" * 40


class Answered(Toy):
    """The toy task with a gold answer, so that there is a vote."""

    def problems(self, split):
        return [dataclasses.replace(problem, answer="even") for problem in super().problems(split)]


@pytest.fixture(scope="module")
def long_model(tmp_path_factory):
    """A random model with room for a real prompt."""
    folder = tmp_path_factory.mktemp("long")
    model, tokenizer = random_model("qwen2")
    model.config.max_position_embeddings = 2048
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def settings(model_folders, monkeypatch):
    """Settings of a small evaluation of toy tasks: settings(k=4, temperature=1.0)."""
    monkeypatch.setattr(module, "get_task", lambda name, *rest: Answered(name))
    monkeypatch.setattr(provenance, "git_commit", lambda: COMMIT)

    def build(**changed):
        return Settings(**{"model": model_folders["qwen2"], "tasks": ("a",), "max_new_tokens": 6, "batch": 4} | changed)

    return build


SAMPLED = {"tasks": ("a", "b"), "k": 2, "temperature": 1.0}


def rows(out):
    return provenance.read_jsonl(out / "problems.jsonl")


# -- what is computed


def test_greedy_accuracy_is_that_of_the_evaluation_in_training(settings, config, tmp_path):
    found = run(settings(), tmp_path, ["python"])
    engine = TransformersEngine(*load_policy(config()), config())
    task = Answered("a")
    greedy = complete_and_grade(engine, {"a": task}, {"a": task.problems("test")}, Accelerator())
    assert [line["rewards"] for line in rows(tmp_path)] == greedy.rewards["a"]
    right = sum(reward for (reward,) in greedy.rewards["a"])
    assert 0 < right < 8
    (row,) = found.to_dict("records")
    assert (row["metric"], row["value"], row["n"]) == ("accuracy", right / 8, 8)
    assert (row["k"], row["tau"], row["p"], row["tokens"]) == (1, 0.0, 1.0, greedy.tokens)
    assert row["low"] < row["value"] < row["high"]


def test_a_line_holds_the_problem_and_each_completion(settings, tmp_path):
    run(settings(**SAMPLED), tmp_path, ["python"])
    lines = rows(tmp_path)
    assert [(line["task"], line["id"]) for line in lines] == [(n, f"test-{i}") for n in "ab" for i in range(8)]
    for line, problem in zip(lines, Answered("a").problems("test") * 2, strict=True):
        assert (line["prompt"], line["gold"], line["too_long"]) == (problem.prompt, "even", False)
        for text, answer, reward, tokens, truncated in zip(
            *(line[key] for key in ("completions", "answers", "rewards", "tokens", "truncated")), strict=True
        ):
            graded = Toy().grade(problem, text)
            assert (answer, reward) == (graded.answer, graded.reward)
            characters = len(re.sub("<pad>|<unk>", "x", text))
            assert tokens == characters + (not truncated)  # a character a token, and EOS where it was not cut
    assert {cut for line in lines for cut in line["truncated"]} == {True, False}
    found = pd.read_csv(tmp_path / "table.csv")
    assert list(found["metric"]) == ["avg@2", "pass@2", "maj@2"] * 2
    mean = sum(sum(line["rewards"]) for line in lines[:8]) / 16
    assert found["value"][0] == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize("changed", [{"batch": 16}, {"batch": 1}, {"tasks": ("b", "a")}])
def test_samples_do_not_depend_on_the_batch_or_on_the_other_tasks(settings, tmp_path, changed):
    for name, more in (("one", {}), ("other", changed)):
        run(settings(**SAMPLED | more), tmp_path / name, ["python"])
    one, other = (sorted(rows(tmp_path / name), key=lambda r: (r["task"], r["id"])) for name in ("one", "other"))
    assert one == other
    texts = {task: [line["completions"] for line in one if line["task"] == task] for task in "ab"}
    assert texts["a"] != texts["b"]  # each task has its own random numbers


@pytest.mark.parametrize("failed_grading", ["zero", "raise"])
def test_a_grader_that_fails_is_counted_and_named_or_ends_the_evaluation(
    settings, monkeypatch, tmp_path, capsys, failed_grading
):  # fmt: skip
    class Moody(Answered):
        def grade(self, problem, completion):
            if problem.id == "test-3":
                raise KeyError("no such key")
            return super().grade(problem, completion)

    monkeypatch.setattr(module, "get_task", lambda name, *rest: Moody(name))
    chosen = settings(**SAMPLED, failed_grading=failed_grading)
    if failed_grading == "raise":
        with pytest.raises(ValueError, match="task 'a' raised KeyError.* for problem 'test-3'"):
            run(chosen, tmp_path, ["python"])
        assert provenance.read_json(tmp_path / "run.json")["status"] == "failed"
        return
    run(chosen, tmp_path, ["python"])
    failed = [line for line in rows(tmp_path) if "failed_grades" in line]
    assert [(line["task"], line["id"], line["rewards"]) for line in failed] == [
        (name, "test-3", [0.0, 0.0]) for name in "ab"
    ]
    assert provenance.read_json(tmp_path / "run.json")["failed_grades"] == {"a": 2, "b": 2}
    assert "2 x grading failed, which counts as 0. The first: grade() of task 'a' raised" in capsys.readouterr().err


def test_rewards_that_leave_0_to_1_have_a_mean_and_no_share_of_right_answers(settings, monkeypatch, tmp_path):
    class Scaled(Answered):
        def grade(self, problem, completion):
            found = super().grade(problem, completion)
            return dataclasses.replace(found, reward=5 * found.reward - 3)

    plain = run(settings(**SAMPLED), tmp_path / "plain", ["python"])
    monkeypatch.setattr(module, "get_task", lambda name, *rest: Scaled(name))
    found = run(settings(**SAMPLED), tmp_path / "scaled", ["python"])
    assert list(found["metric"]) == ["reward", "reward"]
    shares = plain[plain["metric"] == "avg@2"]["value"].tolist()
    assert found["value"].tolist() == pytest.approx([5 * share - 3 for share in shares], rel=1e-4)
    text = module.evaluation_table.text(found)
    assert f"{found['value'][0]:.3g} (no %)" in text


def test_a_problem_that_does_not_fit_counts_as_wrong_and_is_counted(settings, monkeypatch, tmp_path):
    class Long(Answered):
        def problems(self, split):
            short = super().problems(split)[:3]
            return [short[0], dataclasses.replace(short[1], prompt="A" * 60), short[2]]  # 60 + 6 of 64 tokens

    monkeypatch.setattr(module, "get_task", lambda name, *rest: Long(name))
    found = run(settings(), tmp_path, ["python"])
    assert (found["n"][0], found["too_long"][0]) == (3, 1)
    line = rows(tmp_path)[1]
    assert (line["too_long"], line["rewards"], line["completions"], line["tokens"]) == (True, [0.0], [], [0])
    alone = [line["rewards"][0] for line in rows(tmp_path)]
    assert found["value"][0] == pytest.approx(sum(alone) / 3, abs=1e-6)


def test_text_after_the_end_of_the_protocol_is_neither_graded_nor_kept(settings, tmp_path):
    evaluator = module.Evaluator(settings(max_new_tokens=6), {}, "cpu")
    evaluator.start(prompt_tokens=58)
    problems, slots = Answered("a").problems("test"), list(range(8))

    def protocol(stop):
        return SimpleNamespace(
            task=Answered("a"), chat=False, by_letter=False, grade=lambda problem, text: Toy().grade(problem, text),
            ask=lambda problem: SimpleNamespace(prompt=problem.prompt, stop=stop),
        )  # fmt: skip

    whole = evaluator.answer(protocol(""), problems, slots)
    stop = next(text[1] for line in whole for text in line["completions"] if len(text) == 6)
    ended = evaluator.answer(protocol(stop), problems, slots)
    assert whole != ended
    for before, after in zip(whole, ended, strict=True):
        (text,), (kept,) = before["completions"], after["completions"]
        assert kept == text.split(stop)[0] and after["tokens"] == before["tokens"]
        assert after["truncated"] == [before["truncated"][0] and stop not in text]
        assert after["rewards"] == [Toy().grade(None, kept).reward]


# -- letters


def test_letters_are_judged_by_the_next_token_after_the_prompt(long_model):
    model, tokenizer = load_policy(Settings(long_model, ("a",)).config(64))
    texts = ["Which?\nAnswer:", "A longer question, which?\nAnswer:", "?"]
    found = letter_logps(model.eval(), tokenizer, texts, chat=False)
    for text, of_letter in zip(texts, found, strict=True):  # one text, no padding, the blank before the letter read
        ids = torch.tensor([tokenizer(text + " ")["input_ids"]])
        logps = model(ids).logits[0, -1].log_softmax(dim=-1)
        for letter, value in of_letter.items():
            assert value == pytest.approx(logps[tokenizer.convert_tokens_to_ids(letter)].item(), abs=1e-4)
    (chat,) = letter_logps(model, tokenizer, texts[:1], chat=True)
    logps = model(torch.tensor([tokenizer(texts[0])["input_ids"]])).logits[0, -1].log_softmax(dim=-1)
    assert chat["A"] == pytest.approx(logps[tokenizer.convert_tokens_to_ids("A")].item(), abs=1e-4)


def test_a_blank_and_a_letter_are_one_token_where_the_tokeniser_has_it():
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = bytes_of
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<pad>"], initial_alphabet=bytes_of.alphabet())
    trained.train_from_iterator([f"Answer: {letter}" for letter in "ABCD"] * 9, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=trained, pad_token="<pad>", padding_side="left")
    ids = [tokenizer.convert_tokens_to_ids(f"Ġ{letter}") for letter in "ABCD"]
    assert None not in ids and tokenizer.tokenize("x: A") == ["x", ":", "ĠA"]
    table_V_V = torch.randn(300, 300, generator=torch.Generator().manual_seed(0))

    class LastToken(torch.nn.Module):
        """The next token depends only on the last one."""

        device = torch.device("cpu")

        def forward(self, input_ids, **rest):
            return SimpleNamespace(logits=table_V_V[input_ids[:, -1:]])

    (found,) = letter_logps(LastToken(), tokenizer, ["Answer:"], chat=False)
    logps = table_V_V[tokenizer(":")["input_ids"][0]].log_softmax(dim=-1)
    assert list(found.values()) == pytest.approx(logps[ids].tolist(), abs=1e-6)


def mmlu(folder):
    """Two questions for each of MMLU-STEM's subjects, two demonstrations each."""
    for split in ("dev", "val", "test"):
        (folder / "mmlu" / split).mkdir(parents=True)
        for subject in MMLU_SUBJECTS:
            text = "".join(f"{subject} {i} in {split}?,1,2,3,4,{letter}\n" for i, letter in enumerate("BD"))
            (folder / "mmlu" / split / f"{subject}_{split}.csv").write_text(text)
    return folder


def test_mmlu_is_answered_by_the_likeliest_letter_and_deepseekmaths_prompt_is_another(long_model, tmp_path):
    data = str(mmlu(tmp_path / "data"))
    settings = Settings(long_model, ("mmlu_stem",), problems=20, batch=8, max_new_tokens=4, data_dir=data)
    found = run(settings, tmp_path / "out", ["python"])
    (row,) = found.to_dict("records")
    assert (row["prompt"], row["grading"], row["metric"]) == ("mmlu (2-shot)", "likeliest letter", "accuracy")
    assert (row["tokens"], row["k"], row["n"]) == (0, 1, 20)
    for line in rows(tmp_path / "out"):
        letter = max(line["logprobs"], key=line["logprobs"].get)
        assert line["completions"] == line["answers"] == [letter]
        assert line["rewards"] == [float(letter == line["gold"])]
        assert line["prompt"].startswith("The following are multiple choice") and line["prompt"].endswith("Answer:")
    with pytest.raises(FileNotFoundError, match="cot_mmlu_stem_4_shot.py"):
        run(dataclasses.replace(settings, prompt="deepseekmath"), tmp_path / "other", ["python"])


# -- which problems


def test_where_a_split_is_sorted_by_subject_subjects_take_turns():
    def problem(subject, i):
        return SimpleNamespace(subject=subject, id=f"{subject}{i}")

    sorted_by_subject = [problem(s, i) for s, n in (("a", 3), ("b", 1), ("c", 2)) for i in range(n)]
    assert [p.id for p in first(sorted_by_subject, 5)] == ["a0", "b0", "c0", "a1", "c1"]
    assert first(sorted_by_subject, None) == sorted_by_subject
    mixed = [problem(s, i) for i, s in enumerate("abab")]
    assert first(mixed, 3) == mixed[:3]
    plain = [Problem("t", str(i), "", "") for i in range(4)]
    assert first(plain, 2) == plain[:2] and first(plain, 9) == plain


# -- interrupted, and shared by ranks


@pytest.mark.parametrize("lines", [0, 1, 5, 8, 15])
def test_a_broken_evaluation_goes_on_to_the_same_file(settings, monkeypatch, tmp_path, lines):
    run(settings(**SAMPLED), tmp_path / "whole", ["python"])
    append, written = provenance.append_jsonl, []

    def until_killed(path, row):
        if len(written) == lines:
            with open(path, "ab") as file:
                file.write(json.dumps(row).encode()[:40])  # the power fails in the middle of a line
            raise KeyboardInterrupt
        append(path, row)
        written.append(row["id"])

    broken = tmp_path / "broken"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(provenance, "append_jsonl", until_killed)
        run(settings(**SAMPLED), broken, ["python"])
    record = provenance.read_json(broken / "run.json")
    assert (record["status"], record["exit_status"], record["error"]) == ("failed", 1, "KeyboardInterrupt: ")
    assert not (broken / "problems.jsonl").exists()

    again = []
    monkeypatch.setattr(provenance, "append_jsonl", lambda path, row: (append(path, row), again.append(row["id"])))
    found = run(settings(**SAMPLED), broken, ["python"])
    assert len(again) == 16 - lines  # nothing is lost, and nothing written twice
    assert (broken / "problems.jsonl").read_bytes() == (tmp_path / "whole" / "problems.jsonl").read_bytes()
    whole = pd.read_csv(tmp_path / "whole" / "table.csv")
    pd.testing.assert_frame_equal(found.drop(columns="seconds"), whole.drop(columns="seconds"))
    assert {path.name for path in broken.iterdir()} == {"problems.jsonl", "table.csv", "run.json"}
    assert provenance.read_json(broken / "run.json")["status"] == "finished"


def test_a_finished_evaluation_is_read_and_not_made_again(settings, monkeypatch, tmp_path):
    before = run(settings(), tmp_path, ["python"])
    monkeypatch.setattr(module, "Evaluator", None)
    pd.testing.assert_frame_equal(run(settings(), tmp_path, ["python"]), before)


def copies(folder, tmp_path):
    """The same model in two folders of one name."""
    for name in "xy":
        shutil.copytree(folder, tmp_path / name / "policy")
    return [tmp_path / name / "policy" for name in "xy"]


def test_two_models_of_one_name_share_no_folder_and_no_result(settings, model_folders, tmp_path):
    one, other = copies(model_folders["qwen2"], tmp_path)
    assert settings(model=str(one)).folder() == settings(model=str(other)).folder()  # a copy is the same model
    with open(other / "model.safetensors", "r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))  # one bit of one weight
    assert settings(model=str(one)).folder() != settings(model=str(other)).folder()
    run(settings(model=str(one)), tmp_path / "out", ["python"])
    with pytest.raises(ConfigError, match="was made with weights '[0-9a-f]{16}', not '[0-9a-f]{16}'. Give another"):
        run(settings(model=str(other)), tmp_path / "out", ["python"])
    assert settings(model="Someone/Model").identity()["weights"] is None


@pytest.mark.parametrize("changed", [{"id": "x"}, {"prompt": "x"}, {"answer": "odd"}])
def test_other_problems_are_another_evaluation(settings, monkeypatch, tmp_path, changed):
    run(settings(), tmp_path / "out", ["python"])
    several = Answered("a").problems("test")
    several[3] = dataclasses.replace(several[3], **changed)
    monkeypatch.setattr(Answered, "problems", lambda self, split: several)
    with pytest.raises(ConfigError, match="was made with data '[0-9a-f]{16}', not '[0-9a-f]{16}'"):
        run(settings(), tmp_path / "out", ["python"])
    assert settings(data_dir="one").folder() != settings(data_dir="other").folder()


def test_changed_code_is_another_evaluation_also_where_no_commit_tells(settings, monkeypatch, tmp_path):
    monkeypatch.setattr(provenance, "git_commit", lambda: f"{COMMIT}-dirty")
    before, folder = run(settings(), tmp_path, ["python"]), settings().folder()
    pd.testing.assert_frame_equal(run(settings(), tmp_path, ["python"]), before)
    monkeypatch.setattr(module, "code_digest", lambda: "other")
    assert settings().folder() != folder
    with pytest.raises(ConfigError, match="was made with code '[0-9a-f]{16}', not 'other'"):
        run(settings(), tmp_path, ["python"])


def test_the_engine_is_made_for_the_longest_prompt_and_its_answer_alone(settings, monkeypatch, tmp_path):
    made, make_engine = [], module.make_engine
    monkeypatch.setattr(module, "make_engine", lambda *given: made.append(given[2]) or make_engine(*given))
    run(settings(), tmp_path, ["python"])
    longest = max(len(problem.prompt) for problem in Answered("a").problems("test"))  # a character a token
    assert [config.max_sequence_tokens for config in made] == [longest + 6]
    evaluator = module.Evaluator(settings(), {}, "cpu")
    evaluator.engine.tools = {"a": None}  # observations may fill the context
    evaluator.start(longest)
    assert evaluator.engine.config.max_sequence_tokens == 64


@pytest.fixture
def ranks(settings, monkeypatch):
    """Evaluate with two ranks, in threads: ranks(out) gives their tables and {file: the lines in it}."""
    barrier = threading.Barrier(2, timeout=60)
    loaded = [load_policy(settings().config(64)) for _ in range(2)]  # transformers can load only in one thread

    def state_of_thread(cpu, timeout):
        rank = int(threading.current_thread().name)
        return SimpleNamespace(
            process_index=rank, num_processes=2, is_main_process=rank == 0, device="cpu",
            wait_for_everyone=barrier.wait,
        )  # fmt: skip

    append, written = provenance.append_jsonl, {"rank0.jsonl": [], "rank1.jsonl": []}

    def watch(path, row):
        written[path.name].append((row["task"], row["id"]))
        append(path, row)

    def start_all(out):
        monkeypatch.setattr(module, "PartialState", state_of_thread)
        monkeypatch.setattr(module, "load_policy", lambda config: loaded[int(threading.current_thread().name)])
        monkeypatch.setattr(provenance, "append_jsonl", watch)
        tables = {}

        def start(rank):
            tables[rank] = run(settings(**SAMPLED), out, ["python"])

        threads = [threading.Thread(target=start, args=(rank,), name=str(rank)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return tables, written

    return start_all


def test_two_ranks_write_what_one_writes(settings, ranks, tmp_path):
    run(settings(**SAMPLED), tmp_path / "one", ["python"])
    tables, written = ranks(tmp_path / "two")
    assert (tmp_path / "two" / "problems.jsonl").read_bytes() == (tmp_path / "one" / "problems.jsonl").read_bytes()
    assert [len(shard) for shard in written.values()] == [8, 8]  # batches of 2 problems, in turns
    assert written["rank1.jsonl"][:2] == [("a", "test-2"), ("a", "test-3")]
    pd.testing.assert_frame_equal(tables[0], tables[1])
    assert {path.name for path in (tmp_path / "two").iterdir()} == {"problems.jsonl", "table.csv", "run.json"}


def test_ranks_share_what_a_broken_evaluation_has_left(settings, ranks, monkeypatch, tmp_path):
    run(settings(**SAMPLED), tmp_path / "whole", ["python"])
    answer, begun = module.Evaluator.answer, []

    def until_killed(self, protocol, problems, slots):
        begun.append(slots)
        if len(begun) == 7:
            raise KeyboardInterrupt
        return answer(self, protocol, problems, slots) if len(begun) % 2 == 0 else []

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module.Evaluator, "answer", until_killed)  # batches 1, 3 and 5 of 8 are done: one rank's
        run(settings(**SAMPLED), tmp_path / "two", ["python"])
    _, written = ranks(tmp_path / "two")
    assert [len(shard) for shard in written.values()] == [6, 4]  # 3 and 2 of the 5 batches of 2 problems
    assert (tmp_path / "two" / "problems.jsonl").read_bytes() == (tmp_path / "whole" / "problems.jsonl").read_bytes()


def test_a_rank_waits_longer_than_the_backends_ten_minutes(monkeypatch):
    given = {}
    monkeypatch.setattr(module, "PartialState", lambda **options: given.update(options))
    module._ranks()
    assert given["timeout"].days >= 1


@pytest.mark.slow
def test_two_processes_write_what_one_writes(tmp_path):
    options = ["--model", "tiny-qwen2-a", "--tasks", "steps", "--problems", "12", "--k", "2", "--batch", "4",
               "--max-new-tokens", "8"]  # fmt: skip
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    words = ["-m", "agpo_core.evaluation.evaluate", *options, "--out"]
    ranks = ["-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={port}"]
    env = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    for more, name in (([], "one"), (ranks, "two")):
        done = subprocess.run(
            [sys.executable, *more, *words, str(tmp_path / name)], cwd=paths.root(), env=env, capture_output=True,
            text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.count("avg@2") == 1  # one rank prints the table
    assert (tmp_path / "two" / "problems.jsonl").read_bytes() == (tmp_path / "one" / "problems.jsonl").read_bytes()
    assert provenance.read_json(tmp_path / "two" / "run.json")["ranks"] == 2


@pytest.mark.slow
def test_where_one_process_cannot_grade_the_other_does_not_wait_for_it(tmp_path):
    options = ["--model", "tiny-qwen2-a", "--tasks", "steps", "--problems", "12", "--batch", "4",
               "--max-new-tokens", "8", "--failed-grading", "raise", "--out", str(tmp_path / "out")]  # fmt: skip
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    words = ["-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={port}"]
    env = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words, "-m", "tests.evaluation.failing_rank", *options], cwd=paths.root(), env=env,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert "rank 0 ended with 2" in done.stdout and "rank 1 ended with 2" in done.stdout
    assert "grade() of task 'steps' raised ZeroDivisionError" in done.stderr
    assert "rank 1 failed: GradingError" in done.stderr
    assert "GradingError" in provenance.read_json(tmp_path / "out" / "run.json")["error"]


# -- what is refused


def test_a_folder_of_another_evaluation_is_refused_and_left_as_it_is(settings, monkeypatch, tmp_path):
    run(settings(), tmp_path / "out", ["python"])
    before = (tmp_path / "out" / "run.json").read_bytes()
    with pytest.raises(ConfigError, match="was made with k 1, not 2; temperature 0.0, not 1.0. Give another folder"):
        run(settings(k=2, temperature=1.0), tmp_path / "out", ["python"])
    monkeypatch.setattr(provenance, "git_commit", lambda: "b" * 40)
    with pytest.raises(ConfigError, match=f"was made with commit '{COMMIT}', not 'b"):
        run(settings(), tmp_path / "out", ["python"])
    assert (tmp_path / "out" / "run.json").read_bytes() == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(ConfigError, match="is not empty and contains no evaluation"):
        run(settings(), tmp_path / "mine", ["python"])


@pytest.mark.parametrize("below", [".", "below"])
def test_a_file_is_no_folder(settings, tmp_path, below):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ConfigError, match="out: .*notes' is a file; give a folder"):
        run(settings(), tmp_path / "notes" / below, ["python"])
    assert (tmp_path / "notes").read_text() == "mine"


def test_a_folder_that_another_evaluation_writes_to_is_refused_until_that_ends(settings, tmp_path):
    with module._alone(tmp_path), pytest.raises(ConfigError, match="another process is writing to .*give another fol"):
        run(settings(), tmp_path, ["python"])
    assert not any(tmp_path.iterdir())
    run(settings(), tmp_path, ["python"])
    assert len(rows(tmp_path)) == 8


def test_what_another_evaluation_finished_meanwhile_is_read(settings, monkeypatch, tmp_path):
    evaluator, found = module.Evaluator, []

    def slow(*given):  # another evaluation is made and ends while this model loads
        monkeypatch.setattr(module, "Evaluator", evaluator)
        found.append(run(settings(), tmp_path, ["python"]))
        monkeypatch.setattr(module, "_answer_all", None)
        return evaluator(*given)

    monkeypatch.setattr(module, "Evaluator", slow)
    pd.testing.assert_frame_equal(run(settings(), tmp_path, ["python"]), found[0])


def test_an_evaluation_does_not_go_on_under_another_prompt(long_model, monkeypatch, tmp_path):
    data = tmp_path / "data"
    (data / "gsm8k").mkdir(parents=True)
    (data / "gsm8k" / "test.jsonl").write_text(json.dumps({"question": "Two?", "answer": "#### 2"}) + "\n")
    settings = Settings(long_model, ("gsm8k",), max_new_tokens=4, data_dir=str(data))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), pytest.warns(match="asked zero-shot"):
        patch.setattr(module, "_answer_all", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        run(settings, tmp_path / "out", ["python"])
    (data / "few_shot_prompts").mkdir()
    (data / "few_shot_prompts" / "cot_gsm_8_shot.py").write_text("few_shot_prompt = 'Q: a\\nA: b'")
    with pytest.raises(ConfigError, match="'prompt': 'zero'.* not .*deepseekmath"):
        run(settings, tmp_path / "out", ["python"])


def test_a_context_without_room_is_named(settings, tmp_path):
    with pytest.raises(ConfigError, match="max_new_tokens 64: the context of .* has 64 tokens"):
        run(settings(max_new_tokens=64), tmp_path, ["python"])
    with pytest.raises(ConfigError, match="no prompt of a fits into the 64 tokens of .* with 63 new ones"):
        run(settings(max_new_tokens=63), tmp_path, ["python"])
    assert not any(tmp_path.iterdir())


def test_a_task_without_problems_is_named(settings, monkeypatch, tmp_path):
    monkeypatch.setattr(Answered, "problems", lambda self, split: [])
    with pytest.raises(ConfigError, match="a has no dev problem; leave it out"):
        run(settings(split="dev"), tmp_path, ["python"])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tasks": ()}, "tasks must be one name or several"),
        ({"tasks": ("a", "a")}, "tasks must be .* each once"),
        ({"k": 0}, "k must be at least 1"),
        ({"k": 4}, "k 4 at temperature 0: greedy completions are all the same"),
        ({"temperature": -1.0}, "temperature must be 0 or more"),
        ({"temperature": float("nan")}, "temperature must be finite, got nan"),
        ({"temperature": float("inf"), "k": 2}, "temperature must be finite, got inf"),
        ({"grading": "best"}, "grading must be one of modern, official, gsm8k_openai, .*dapo"),
        ({"top_p": 0.0}, "top_p must be in"),
        ({"problems": 0}, "problems must be at least 1"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"seed": -1}, "seed must be in"),
        ({"prompt": "many"}, "prompt must be one of auto, few, zero, deepseekmath, agieval, mmlu"),
        ({"engine": "other"}, "engine must be one of transformers, vllm"),
    ],
)
def test_a_setting_out_of_range_is_named(changed, message):
    with pytest.raises(ConfigError, match=message):
        Settings(**{"model": "m", "tasks": ("a",)} | changed)


def test_settings_reach_the_sampler(settings):
    chosen = settings(k=3, temperature=0.7, top_p=0.8, seed=7, batch=9, engine="vllm", dtype="bfloat16")
    config = chosen.config(context=99)
    assert (config.top_p, config.seed, config.rollout_batch, config.group_size) == (0.8, 7, 9, 3)
    assert (config.max_completion_tokens, config.max_sequence_tokens) == (6, 99)
    assert (config.engine, config.dtype, config.model) == ("vllm", "bfloat16", chosen.model)


# -- the record


def test_a_record_holds_no_text_of_a_benchmark_and_names_no_folder(settings, tmp_path):
    words = ["--data-dir=/mnt/someone/data", "--model", f"{paths.root()}-old/policy"]
    run(settings(**SAMPLED), tmp_path / "out", [sys.executable, "-m", "x", *words])
    promote(tmp_path / "out", tmp_path / "record")
    assert {path.name for path in (tmp_path / "record").iterdir()} == {"problems.jsonl", "table.csv", "run.json"}
    recorded, lines = provenance.read_jsonl(tmp_path / "record" / "problems.jsonl"), rows(tmp_path / "out")
    for line, kept in zip(lines, recorded, strict=True):
        assert kept == {key: value for key, value in line.items() if key not in ("prompt", "gold", "completions")}
    record = provenance.read_json(tmp_path / "record" / "run.json")
    assert record["command"] == "python -m x --data-dir=data --model policy" and record["commit"] == COMMIT
    assert "/" not in record["settings"]["model"]
    assert not any(f"{folder}/" in json.dumps(record) for folder in (paths.root().parent, tmp_path, "/mnt"))
    assert (tmp_path / "record" / "table.csv").read_bytes() == (tmp_path / "out" / "table.csv").read_bytes()


def test_what_is_unfinished_or_uncommitted_is_no_record(settings, monkeypatch, tmp_path):
    for commit in ("unknown", f"{COMMIT}-dirty"):
        with pytest.raises(ValueError, match=f"made from {commit}, .*commit first"):
            refuse_dirty(commit)
    refuse_dirty(COMMIT)
    run(settings(), tmp_path / "out", ["python"])
    record = provenance.read_json(tmp_path / "out" / "run.json")
    provenance.write_json(tmp_path / "out" / "run.json", record | {"status": "failed"})
    with pytest.raises(ValueError, match="is not finished; run the same command again"):
        promote(tmp_path / "out", tmp_path / "record")
    assert not (tmp_path / "record").exists()


# -- the command line


def test_the_command_evaluates_prints_the_table_and_records(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(provenance, "git_commit", lambda: COMMIT)
    monkeypatch.setattr(paths, "reference", lambda: tmp_path / "reference")
    monkeypatch.setenv("AGPO_OUTPUTS", str(tmp_path))
    main(["--model", "tiny-qwen2-a", "--tasks", "steps, choice_facts", "--problems", "6", "--k", "2",
          "--max-new-tokens", "12", "--record", "small/evaluation"])  # fmt: skip
    shown = capsys.readouterr().out
    (out,) = (tmp_path / "runs" / "evaluation").iterdir()
    assert out.name.startswith("tiny-qwen2-a-") and str(out) in shown
    assert shown.count("maj@2") == 2 and "steps" in shown and "choice_facts" in shown
    settings = provenance.read_json(out / "run.json")["settings"]
    assert (settings["temperature"], settings["tasks"]) == (1.0, ["steps", "choice_facts"])
    assert (tmp_path / "reference" / "small" / "evaluation" / "table.csv").is_file()


def test_a_task_of_programs_without_a_sandbox_is_refused_in_a_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sandbox, "missing", lambda weak: ["network: open"])
    monkeypatch.delenv(sandbox.WEAK_VARIABLE, raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["--model", "tiny-qwen2-a", "--tasks", "gsm8k_python", "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no full sandbox (network: open). Allow user namespaces" in line and sandbox.WEAK_VARIABLE in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tasks", "gsm9k"], "unknown task 'gsm9k'; use one of"),
        (["--tasks", "steps", "--model", "no/such/folder"], "model 'no/such/folder' could not be loaded"),
        (["--tasks", "gsm8k", "--data-dir", "no/such/folder"], "data_dir: no folder"),
        (["--tasks", ","], "tasks must be one name or several"),
        (["--tasks", "steps", "--k", "0"], "k must be at least 1"),
        (["--tasks", "steps", "--temperature", "inf", "--k", "2"], "temperature must be finite"),
        (["--tasks", "steps", "--grading", "dapo", "--max-new-tokens", "8"], "dapo does not score steps; use modern"),
        (["--tasks", "steps", "--record", "x"], "made from .*-dirty"),
    ],
)
def test_the_command_ends_with_a_line_that_says_what_to_do(words, message, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(provenance, "git_commit", lambda: f"{COMMIT}-dirty")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SystemExit) as ended:
        main(["--model", "tiny-qwen2-a", "--out", str(tmp_path / "out"), *words])
    assert ended.value.code == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()

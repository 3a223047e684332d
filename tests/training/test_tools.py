"""Turns with a tool: which tokens are sampled and which are only read, and that only sampled tokens count."""

import dataclasses
import re

import pytest
import torch
from accelerate import Accelerator

from agpo_core import advantages, provenance, sandbox
from agpo_core.config import ConfigError
from agpo_core.evaluation.evaluate import complete_and_grade
from agpo_core.experiments import grid, profiles
from agpo_core.horizon import uniforms
from agpo_core.models import tool_start
from agpo_core.rollouts import rollout
from agpo_core.rollouts.loading import load_policy
from agpo_core.rollouts.policy import completion_logits, token_logps
from agpo_core.rollouts.rollout import TransformersEngine, closing_tokens, sample_token, score
from agpo_core.rollouts.turns import Row, Turn, converse
from agpo_core.tasks import Graded, Problem
from agpo_core.tasks.tools import Calculator, Python, Reply
from agpo_core.training import run as run_module
from agpo_core.training.batch import Batch, minibatch_loss
from agpo_core.training.journal import Journal
from agpo_core.training.train import train
from tests.conftest import Echo, Sums, Toy

END = "$"  # in a script: end-of-sequence
families = pytest.mark.parametrize("family", ["qwen2", "llama", "gemma2"])


class Talk(Toy):
    """The toy task with an echo; the reward asks for a late character, so that it depends on the later turns."""

    tool = Echo()

    def grade(self, problem, completion):
        return Graded(float(ord(completion[-1]) % 3 == 0), completion[-1]) if completion else Graded(0.0, None)


PROBLEMS = [Problem("toy", str(i), prompt, "") for i, prompt in enumerate(["AB", "CDEFGH", "J", "KLM", "NO"])]


@pytest.fixture(scope="module")
def make_engine(config):
    """An engine on a small random model: make_engine(Sums(), max_turns=2)."""

    def make(task, family="qwen2", **params):
        c = config(family=family, **params)
        return TransformersEngine(*load_policy(c), c, {"toy": task})

    return make


def sample(engine, problems=PROBLEMS, slots=None, group=3, tau=1.0, **key):
    prompts = engine.encode(problems, slots or list(range(len(problems))))
    tau_P = torch.full((len(problems),), tau)
    return engine.sample(prompts, engine.open(prompts), group, tau_P, "train", 0, **key)


@pytest.fixture
def scripted(make_engine, monkeypatch):
    """Let the policy write a given text in each completion: scripted(["<3*4>12$"], Sums(), max_turns=2).

    The script is read at the index of the random stream, so a completion shows at which index each token was drawn. The
    log-probabilities are the model's.
    """

    def make(scripts, task=None, problems=None, **params):
        engine = make_engine(task or Sums(), **{"max_completion_tokens": 24, "top_p": 1.0, **params})
        tokens = [
            [engine.tokenizer.eos_token_id if c == END else engine.tokenizer(c)["input_ids"][0] for c in script]
            for script in scripts
        ]
        group = len(scripts) // len(problems or PROBLEMS[:1])

        def key(seed, phase, update, slots_B, samples_B, token_B):
            return (slots_B * group + samples_B) * 1000.0 + token_B

        def read(logits_B_V, tau_B, top_p, key_B):
            ids = torch.tensor([tokens[int(k) // 1000][int(k) % 1000] for k in key_B.tolist()])
            return ids, token_logps(logits_B_V, ids, tau_B.unsqueeze(1))

        monkeypatch.setattr(rollout, "uniforms", key)
        monkeypatch.setattr(rollout, "sample_token", read)
        found = sample(engine, problems or PROBLEMS[:1], group=group)
        return engine, found

    return make


def marks(found, row=0):
    """A completion's tokens: s sampled, o observed, . padding."""
    pairs = zip(found.mask_B_T[row].tolist(), found.present_B_T[row].tolist(), strict=True)
    return "".join("s" if sampled else "o" if present else "." for sampled, present in pairs)


# -- what is sampled and what is read


def test_a_call_is_answered_and_the_policy_writes_on(scripted):
    engine, found = scripted(["<3*4>12$", "7$"])
    assert found.transcripts == ["<3*4>=12;12", "7"]
    assert found.texts == ["<3*4>12", "7"]  # only what the policy wrote is graded
    assert [marks(found, row) for row in (0, 1)] == ["sssssoooosss", "ss.........."]
    assert engine.tokenizer.decode(found.completion_ids_B_T[0]) == "<3*4>=12;12<eos>"
    assert found.sampler_logps_B_T[~found.mask_B_T].eq(0).all()
    assert found.calls_B.tolist() == [1, 0]
    assert not found.truncated_B.any()


def test_observations_are_not_in_the_token_ledger(scripted):
    _, found = scripted(["<3*4>12$", "7$"])
    assert found.tokens == len("<3*4>12$") + len("7$")


def test_a_completion_may_call_twice_and_rows_call_at_different_times(scripted):
    _, found = scripted(["<3*4><12*2>24$", "0<1+1>2$", "9$"])
    assert found.transcripts == ["<3*4>=12;<12*2>=24;24", "0<1+1>=2;2", "9"]
    assert marks(found, 0) == "sssssoooo" + "ssssssoooo" + "sss"
    assert found.calls_B.tolist() == [2, 1, 0]


@pytest.mark.parametrize("call", ["<3*>", "<>", "<1/0>", "<<3*4>"])
def test_a_malformed_call_is_answered_by_an_error(scripted, call):
    _, found = scripted([f"{call}5$"])
    assert found.transcripts == [f"{call}=?;5"]
    assert (found.calls_B.tolist(), found.failed_calls_B.tolist()) == ([1], [1])


def test_what_is_no_call_is_text(scripted):
    _, found = scripted(["3*4>5$", "<3*4$"])
    assert found.transcripts == found.texts == ["3*4>5", "<3*4"]
    assert found.calls_B.tolist() == [0, 0]


def test_special_tokens_are_no_part_of_a_call(scripted, make_engine):
    # "<eos>" ends in the mark that closes a call.
    _, found = scripted(["<3*4$"])
    assert found.mask_B_T.sum() == 5
    tokenizer = make_engine(Sums()).tokenizer
    assert tokenizer.batch_decode(closing_tokens(tokenizer, {"toy": Sums.tool})[:, None]) == [">"]


def test_each_completion_has_the_tool_of_its_own_task(scripted, make_engine, monkeypatch):
    problems = [Problem("toy", "0", "AB", ""), Problem("bare", "1", "AB", "")]
    _, found = scripted(["<3*4>12$", "<3*4>12$"], problems=problems)
    assert found.transcripts == ["<3*4>=12;12", "<3*4>12"]


class Printer(Echo):
    def run(self, calls):
        return [Reply("1<eos>" + "z" * 600) for _ in calls]


def test_the_output_is_cut_and_cannot_hold_an_end_of_sequence(scripted):
    task = Toy()
    task.tool = Printer()
    engine, found = scripted(["a4$"], task, max_observation_characters=9)
    assert found.transcripts == ["a=1<eos>zzz;4"]
    assert found.completion_ids_B_T[0].eq(engine.tokenizer.eos_token_id).sum() == 1  # the one that was sampled
    assert marks(found) == "s" + "o" * 11 + "ss"


# -- limits


class Counting(Calculator):
    def __init__(self):
        self.asked = 0

    def run(self, calls):
        self.asked += len(calls)
        return super().run(calls)


def counted(scripted, *args, **params):
    task = Toy()
    task.tool = Counting()
    _, found = scripted(*args, task, **params)
    return found, task.tool.asked


@pytest.mark.parametrize(
    ("turns", "transcript", "truncated"),
    [
        (1, "<3*4>", True),
        (2, "<3*4>=12;<12*2>", True),
        (3, "<3*4>=12;<12*2>=24;24", False),
    ],
)
def test_a_call_in_the_last_turn_ends_the_completion_unanswered(scripted, turns, transcript, truncated):
    found, asked = counted(scripted, ["<3*4><12*2>24$"], max_turns=turns)
    assert found.transcripts == [transcript]
    assert found.truncated_B.tolist() == [truncated]
    assert asked == found.calls_B.item() == transcript.count(";")


@pytest.mark.parametrize(
    ("tokens", "transcript", "truncated"),
    [
        (8, "<3*4>=12;12", False),
        (7, "<3*4>=12;12", True),  # there is no room for the end-of-sequence token
        (6, "<3*4>=12;1", True),
        (5, "<3*4>", True),  # nothing can be sampled after the call: the tool is not asked
        (4, "<3*4", True),
    ],
)
def test_the_limit_of_sampled_tokens_spans_all_turns(scripted, tokens, transcript, truncated):
    found, asked = counted(scripted, ["<3*4>12$"], max_completion_tokens=tokens)
    assert found.transcripts == [transcript]
    assert found.truncated_B.tolist() == [truncated]
    assert found.tokens == tokens
    assert asked == (tokens > 5)


@pytest.mark.parametrize(
    ("tokens", "transcript", "truncated"),
    [  # "AB" are 2, the call 5, the observation 4, the answer with its end 3
        (14, "<3*4>=12;12", False),
        (13, "<3*4>=12;12", True),
        (12, "<3*4>=12;1", True),
        (11, "<3*4>", True),  # the observation would leave no room: it is not appended
        (10, "<3*4>", True),
    ],
)
def test_the_limit_of_all_tokens_counts_prompt_and_observations(scripted, tokens, transcript, truncated):
    # The other prompt is shorter, and its padding does not count as tokens.
    problems = [Problem("toy", "0", "AB", ""), Problem("toy", "1", "A", "")]
    _, found = scripted(["<3*4>12$", "5$"], problems=problems, max_sequence_tokens=tokens, max_completion_tokens=8)
    assert found.transcripts == [transcript, "5"]
    assert found.truncated_B.tolist() == [truncated, False]


@pytest.mark.parametrize("name", ["max_turns", "max_observation_characters"])
def test_limits_below_one_are_refused(config, name):
    with pytest.raises(ConfigError, match=f"{name} must be at least 1; got 0"):
        config(**{name: 0})


# -- a random policy that calls


@families
def test_turns_equal_a_loop_over_single_rows_without_a_cache(make_engine, family):
    engine = make_engine(Talk(), family, top_p=0.9, max_turns=3, max_completion_tokens=7)
    found, tokenizer = sample(engine, tau=1.2), engine.tokenizer
    assert len(found.calls_B.unique()) == 3  # 0, 1 and 2
    for p, problem in enumerate(PROBLEMS):
        for g in range(3):
            prompt = tokenizer(problem.prompt)["input_ids"]
            ids, sampled, logps, turn, turns = [], [], [], [], 1
            while sum(sampled) < 7:
                with torch.no_grad():
                    logits = engine.model(torch.tensor([prompt + ids]), use_cache=False).logits[:, -1]
                u = uniforms(42, "train", 0, torch.tensor([p]), torch.tensor([g]), sum(sampled))
                token, logp = sample_token(logits, torch.tensor([1.2]), 0.9, u)
                ids, turn = [*ids, token.item()], [*turn, token.item()]
                sampled, logps = [*sampled, True], [*logps, logp.item()]
                if token == tokenizer.eos_token_id:
                    break
                call = Echo().call(tokenizer.decode(turn, skip_special_tokens=True))
                if call is not None:
                    if turns == 3 or sum(sampled) == 7:
                        break
                    seen = tokenizer(f"={call};")["input_ids"]
                    ids, sampled, logps = ids + seen, sampled + [False] * len(seen), logps + [0.0] * len(seen)
                    turn, turns = [], turns + 1
            row, n = 3 * p + g, len(ids)
            assert found.completion_ids_B_T[row, :n].tolist() == ids
            assert found.mask_B_T[row].tolist() == sampled + [False] * (found.mask_B_T.shape[1] - n)
            assert found.present_B_T[row].sum() == n
            assert found.truncated_B[row] == (ids[-1] != tokenizer.eos_token_id)
            torch.testing.assert_close(found.sampler_logps_B_T[row, :n], torch.tensor(logps), rtol=1e-5, atol=5e-5)


@pytest.mark.parametrize("rollout_batch", [1, 4, 1000])
def test_samples_do_not_change_with_the_decoding_batch(make_engine, rollout_batch):
    expected = sample(make_engine(Talk()))
    found = sample(make_engine(Talk(), rollout_batch=rollout_batch))
    assert found.transcripts == expected.transcripts
    assert found.completion_ids_B_T.equal(expected.completion_ids_B_T)
    assert found.mask_B_T.equal(expected.mask_B_T)
    torch.testing.assert_close(found.sampler_logps_B_T, expected.sampler_logps_B_T, rtol=1e-5, atol=2e-5)


def test_samples_do_not_change_with_the_prompts_beside_them(make_engine):
    engine = make_engine(Talk())
    together = sample(engine).transcripts
    assert sum(";" in text for text in together) > 5
    for slot, problem in enumerate(PROBLEMS):  # as on a rank that holds this prompt alone
        assert sample(engine, [problem], [slot]).transcripts == together[3 * slot : 3 * slot + 3]


def test_a_tool_that_is_never_called_changes_nothing(make_engine):
    bare, idle = sample(make_engine(Toy()), group=8), sample(make_engine(Sums()), group=8)
    assert idle.calls_B.sum() == 0
    for name in ("completion_ids_B_T", "mask_B_T", "present_B_T", "sampler_logps_B_T", "truncated_B"):
        assert getattr(idle, name).equal(getattr(bare, name)), name
    assert idle.texts == idle.transcripts == bare.texts
    assert bare.calls_B is None


@families
@pytest.mark.parametrize("shared", [True, False])
def test_the_training_forward_sees_what_the_sampler_saw(make_engine, family, shared):
    engine = make_engine(Talk(), family, top_p=1.0, max_completion_tokens=8)
    found = sample(engine)
    assert (found.present_B_T & ~found.mask_B_T).any(dim=1).sum() > 5
    with torch.no_grad():
        logits = completion_logits(engine.model, found, shared)
    expected = token_logps(logits, found.completion_ids_B_T)
    mask = found.mask_B_T
    torch.testing.assert_close(found.sampler_logps_B_T[mask], expected[mask], rtol=1e-5, atol=5e-5)


def test_a_replaced_group_brings_its_observations_along(make_engine):
    engine, tasks = make_engine(Talk(), max_completion_tokens=8), {"toy": Talk()}
    whole, fresh = sample(engine), sample(engine, PROBLEMS[1:2], [1], first_sample=3)
    for part in (whole, fresh):
        score(part, tasks)
    tokens, calls = whole.tokens, whole.calls_B.clone()
    whole.replace(torch.tensor([1]), fresh)
    assert whole.transcripts[3:6] == fresh.transcripts
    assert whole.calls_B.tolist() == [*calls[:3], *fresh.calls_B, *calls[6:]]
    assert [marks(whole, 3 + i).rstrip(".") for i in range(3)] == [marks(fresh, i).rstrip(".") for i in range(3)]
    assert whole.tokens == tokens + fresh.tokens


# -- another engine


class Ordinals:
    """A tokenizer: a token is a character's code."""

    def __call__(self, text, **_):
        return {"input_ids": [ord(character) for character in text]}


class Recited:
    """An engine that recites each row's turns."""

    tokenizer = Ordinals()

    def __init__(self, config, turns):
        self.config, self.turns, self.batches = config, [iter(texts) for texts in turns], []

    def turn(self, rows, phase, update):
        self.batches.append([row.sample for row in rows])
        texts = [next(self.turns[row.sample]) for row in rows]
        return [
            Turn(Ordinals()(text)["input_ids"], [-1.0] * len(text), row.tool.call(text))
            for row, text in zip(rows, texts, strict=True)
        ]


def test_another_engine_takes_the_same_turns_with_python_as_its_tool(config):
    try:
        tool = Python()
    except sandbox.SandboxRefused as refusal:
        pytest.skip(str(refusal))
    c = config(max_completion_tokens=200)
    turns = [
        ["```python\nprint(\n```", "never"],
        ["```python\nprint(nothing)\n```", "```python\nprint('x' * 600)\n```", "long"],
        ["at once"],
    ]
    engine = Recited(c, turns)
    rows = [Row(slot=0, sample=i, tau=1.0, tool=tool, prompt_ids=[65]) for i in range(3)]
    converse(engine, rows, engine.turn(rows, "train", 0), "train", 0)

    broken, erred, bare = ("".join(map(chr, row.ids)) for row in rows)
    head, tail = "\n```output\n", "\n```\n"
    assert broken == f"{turns[0][0]}{head}SyntaxError: '(' was never closed{tail}never"
    assert erred == (
        f"{turns[1][0]}{head}NameError: name 'nothing' is not defined{tail}"
        f"{turns[1][1]}{head}{'x' * c.max_observation_characters}{tail}long"
    )
    assert bare == "at once"
    assert [(row.calls, row.failed, row.drawn) for row in rows] == [
        (1, 1, sum(map(len, turns[0]))),
        (2, 1, sum(map(len, turns[1]))),
        (0, 0, len("at once")),
    ]
    assert engine.batches == [[0, 1, 2], [0, 1], [1]]  # all waiting rows are answered together and go on together


# -- only what was sampled counts


@pytest.fixture(scope="module")
def holed(make_engine):
    """A model and a batch with observations: (engine, batch)."""
    engine = make_engine(Talk(), max_completion_tokens=8, beta=0.1)
    found = sample(engine)
    with torch.no_grad():
        logps_B_T = token_logps(completion_logits(engine.model, found), found.completion_ids_B_T)
    generator = torch.Generator().manual_seed(0)

    def noise():
        return 0.3 * torch.randn(logps_B_T.shape, generator=generator)

    B = len(logps_B_T)
    batch = Batch(
        prompt_ids_P_S=found.prompt_ids_P_S,
        prompt_mask_P_S=found.prompt_mask_P_S,
        completion_ids_B_T=found.completion_ids_B_T,
        mask_B_T=found.mask_B_T,
        present_B_T=found.present_B_T,
        temperature_B=torch.ones(B),
        keep_B=torch.ones(B, dtype=torch.bool),
        old_logps_B_T=logps_B_T + noise(),
        old_logps_T1_B_T=logps_B_T,
        reference_logps_B_T=logps_B_T + noise(),
        entropy=0.0,
        beta=0.1,
        advantages_B_T=torch.randn(B, 1, generator=generator),
        epsilon_B_1=torch.full((B, 1), 0.2),
    )
    return engine, batch


def loss_and_gradient(engine, batch, **params):
    engine.model.zero_grad()
    loss, _, binds_B_T = minibatch_loss(engine.model, batch, engine.config.replace(**params), len(batch.keep_B))
    loss.backward()
    return loss.detach(), torch.cat([p.grad.flatten() for p in engine.model.parameters()]), binds_B_T & batch.mask_B_T


@pytest.mark.parametrize("ratio", ["token", "sequence", "sequence_geo"])
@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean", "constant"])
def test_log_probabilities_of_observations_change_neither_loss_nor_gradient(holed, ratio, aggregation):
    engine, batch = holed
    params = {"ratio": ratio, "aggregation": aggregation}
    expected = loss_and_gradient(engine, batch, **params)
    observed = batch.present_B_T & ~batch.mask_B_T
    assert observed.sum() > 10
    for wrong in (-1000.0, 1000.0):  # k3 of 1,000 nats overflows
        other = dataclasses.replace(
            batch,
            old_logps_B_T=batch.old_logps_B_T.masked_fill(observed, wrong),
            reference_logps_B_T=batch.reference_logps_B_T.masked_fill(observed, wrong),
        )
        for found, value in zip(loss_and_gradient(engine, other, **params), expected, strict=True):
            assert found.isfinite().all()
            assert found.equal(value)


def test_what_was_observed_is_attended_to(holed):
    engine, batch = holed
    changed = dataclasses.replace(
        batch, completion_ids_B_T=batch.completion_ids_B_T.masked_fill(batch.present_B_T & ~batch.mask_B_T, 40)
    )
    assert not torch.allclose(loss_and_gradient(engine, changed)[0], loss_and_gradient(engine, batch)[0])


def test_shared_and_plain_paths_agree_on_batches_with_observations(holed):
    engine, batch = holed
    shared, plain = (loss_and_gradient(engine, batch, shared_prompt=value) for value in (True, False))
    torch.testing.assert_close(shared[0], plain[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(shared[1], plain[1], rtol=1e-3, atol=1e-5)


def test_minibatches_keep_observations_at_the_end_of_the_longest_row(holed):
    _, batch = holed
    for part in batch.split(5):
        widths = part.present_B_T.sum(dim=1)
        assert part.present_B_T.shape[1] == widths.max()
        assert part.present_B_T.sum() >= part.mask_B_T.sum()
    assert sum(part.present_B_T.sum() for part in batch.split(5)) == batch.present_B_T.sum()


def test_an_observation_does_not_cut_the_return_of_what_came_before_it(scripted):
    _, found = scripted(["<3*4>12$", "7$"])
    mask_B_T, rewards_B = found.mask_B_T, torch.tensor([1.0, 0.5])
    expected = torch.where(mask_B_T, rewards_B[:, None], 0.0)
    assert advantages.token_returns(rewards_B, mask_B_T).equal(expected)
    last_B_T = advantages.token_returns(rewards_B, mask_B_T, credit="last_token")
    no_values = torch.zeros_like(last_B_T)
    assert advantages.gae(last_B_T, no_values, mask_B_T, lam=1.0)[0].equal(expected)


# -- a start to train from


def test_starts_that_call_can_be_made_and_loaded(tmp_path, config, capsys, monkeypatch):
    made = tool_start.make
    monkeypatch.setattr(tool_start, "make", lambda *arguments: made(*arguments, steps=2))
    tool_start.main(["--seeds", "3", "4", "--out", str(tmp_path)])
    losses = [float(loss) for loss in re.findall(r"-[34]: loss (\S+),", capsys.readouterr().out)]
    assert len(losses) == 2
    folders = [tmp_path / f"{tool_start.NAME}-{seed}" for seed in (3, 4)]
    for folder, loss in zip(folders, losses, strict=True):
        assert 4 < loss < 7  # nearly untrained: about ln 160 = 5.1 nats per token
        c = config(model=str(folder))
        engine = TransformersEngine(*load_policy(c), c, {"toy": Sums()})
        assert sample(engine).mask_B_T.any(dim=1).all()
    weights = [(folder / "model.safetensors").read_bytes() for folder in folders]
    assert weights[0] != weights[1]  # other weights and other demonstrations


def test_the_recorded_grid_gives_every_method_the_ten_starts_and_as_many_rollouts():
    jobs = grid.plan("rpp_table4_tool_use", profiles.settings("rpp_table4_tool_use", "tiny"))
    trained = [job for job in jobs if job.arm.name != "start"]
    assert {job.config.prompts_per_update * job.config.group_size for job in trained} == {128}  # k = 1: 128 prompts
    for arm in ("ppo", "grpo", "reinforce_pp", "reinforce_pp_baseline"):
        of_arm = [(job.seed, job.start) for job in trained if job.arm.name == arm]
        assert of_arm == [(seed, f"{tool_start.NAME}-{seed}") for seed in range(2, 12)]  # seed i trains start i


# -- in the loop


@pytest.fixture
def talk(monkeypatch, fresh_accelerator):
    """Let the loop find the task of echoes under any name."""
    monkeypatch.setattr(run_module, "get_task", lambda name, *rest: Talk(name))


def trained(config, folder, stops=(None,)):
    folder.mkdir()
    for stop_after in stops:
        train(config, folder, stop_after)
    rows = provenance.read_jsonl(folder / "metrics.jsonl")
    return [{k: v for k, v in row.items() if k not in ("seconds", "seconds_left")} for row in rows]


@pytest.mark.parametrize("method", ["grpo", "ppo", "reinforce_pp_k", "reinforce_pp_baseline", "remax", "agpo"])
def test_methods_train_on_what_was_sampled_alone(config, tmp_path, talk, monkeypatch, method):
    """With the whole vocabulary, sampler and policy agree on every sampled token; other tokens are not compared."""
    seen, log = [], Journal.log
    monkeypatch.setattr(Journal, "log", lambda self, r, *args: (seen.append(r), log(self, r, *args)))
    c = config(method, top_p=1.0, max_completion_tokens=8, dev_problems=0, test_problems=0, horizon=2.0)
    rows = trained(c, tmp_path / "run")
    sampled = 0
    for row, rollouts in zip(rows, seen, strict=True):
        B = len(rollouts.texts)
        # Each character is one token, and so is each special token; a completion that was not cut has an end token.
        texts = "".join(rollouts.texts).replace("<pad>", "p").replace("<unk>", "u")
        sampled += len(texts) + int((~rollouts.truncated_B).sum())
        assert row["tokens_train"] == sampled
        assert row["length"] == pytest.approx(rollouts.mask_B_T.sum().item() / B)
        assert row["sampler_gap"] == pytest.approx(0, abs=2e-5)
        assert row["tool_calls"] == pytest.approx(rollouts.calls_B.sum().item() / B)
        assert row["tool_share"] == pytest.approx(sum(";" in text for text in rollouts.transcripts) / B)
        assert 0.2 < row["tool_share"] <= 1
        assert 0 < row["tool_failures"] < 1
    samples = provenance.read_jsonl(tmp_path / "run" / "samples.jsonl")
    assert any(";" in sample["completion"] for sample in samples)


def test_a_run_with_a_tool_resumes_where_it_was_broken_off(config, tmp_path, talk):
    c = config("grpo", max_completion_tokens=8, checkpoint_every=0.3, test_problems=0)
    assert trained(c, tmp_path / "resumed", (2, None)) == trained(c, tmp_path / "straight")


def test_tasks_without_a_tool_log_nothing_of_one(config, tmp_path, toy_tasks, fresh_accelerator):
    rows = trained(config(horizon=1.0, dev_problems=0, test_problems=0), tmp_path / "run")
    assert not [name for name in rows[0] if name.startswith("tool")]


def test_greedy_evaluation_takes_all_turns(config, fresh_accelerator):
    c, task = config(max_completion_tokens=8, max_turns=2), Talk("toy")
    engine = TransformersEngine(*load_policy(c), c, {"toy": task})
    tokenizer, expected, tokens, calls = engine.tokenizer, [], 0, 0
    for problem in task.problems("test"):
        ids, text, turn, turns = tokenizer(problem.prompt)["input_ids"], "", "", 1
        for left in range(7, -1, -1):
            with torch.no_grad():
                ids.append(engine.model(torch.tensor([ids])).logits[0, -1].argmax().item())
            tokens += 1
            if ids[-1] == tokenizer.eos_token_id:
                break
            turn, text = turn + tokenizer.decode(ids[-1:]), text + tokenizer.decode(ids[-1:])
            if Echo().call(turn) is not None:
                if turns == 2 or left == 0:
                    break
                ids += tokenizer(f"={turn};")["input_ids"]
                turn, turns, calls = "", 2, calls + 1
        expected.append(task.grade(problem, text).reward)
    assert calls >= 2
    found = complete_and_grade(engine, {"toy": task}, {"toy": task.problems("test")}, Accelerator())
    assert found.rewards == {"toy": [[reward] for reward in expected]} and found.tokens == tokens

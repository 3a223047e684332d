"""Rollouts: G sampled completions for each prompt, which is computed only once.

The sampler draws token t of completion g of prompt p by inverting the cumulative distribution, in vocabulary order, at
a random number keyed by (seed, phase, update, p, g, t). A sample does not depend on the batch it is drawn in, on the
dropping of finished rows, or on the number of ranks, up to float rounding at the boundary of two tokens. Where a task
has a tool, a completion takes several turns (see `turns`); t then counts only the sampled tokens.

There are two engines. The transformers engine samples with the model that is being trained. The vLLM engine (see
`vllm_engine`) seeds each request with the random number above: it has the same distributions, but draws other samples.
"""

import copy
import time
from collections.abc import Hashable
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from agpo_core.config import ConfigError, TrainConfig
from agpo_core.horizon import uniforms
from agpo_core.rollouts.grades import graded
from agpo_core.rollouts.policy import prefill
from agpo_core.rollouts.prompts import PromptFormat
from agpo_core.rollouts.turns import Row, Turn, converse
from agpo_core.rollouts.vllm_engine import VLLM
from agpo_core.tasks import Problem, Task
from agpo_core.tasks.tools import Tool, tool_of

# Logits that `sample_token` sorts and sums at once: 8 MiB in float64, and about five times as much working memory.
LOGITS_AT_ONCE = 2**20


@dataclass
class Prompts:
    """The prompts of one update on this rank.

    Attributes:
        problems: the P problems.
        slots_P: index of each prompt within the update, over all ranks; a key of its random streams.
        prompt_ids_P_S, prompt_mask_P_S: tokens and mask, padded on the left.
    """

    problems: list[Problem]
    slots_P: Tensor
    prompt_ids_P_S: Tensor
    prompt_mask_P_S: Tensor

    def select(self, index: Tensor) -> "Prompts":
        """Some of the prompts, without columns that hold only padding."""
        mask = self.prompt_mask_P_S[index]
        start = int(mask.any(dim=0).int().argmax())
        return Prompts(
            [self.problems[i] for i in index.tolist()],
            self.slots_P[index],
            self.prompt_ids_P_S[index, start:],
            mask[:, start:],
        )


@dataclass
class Rollouts:
    """B = P * G completions, the groups contiguous.

    Attributes:
        prompts: the P prompts.
        completion_ids_B_T: sampled tokens with EOS, and between them the tools' observations; padded on the right.
        mask_B_T: True on sampled tokens. present_B_T: True on sampled and on observed tokens.
        sampler_logps_B_T: log-probability under the distribution that drew the token (tau, nucleus).
        temperature_B: tau of each row.
        rewards_B: finite; answers: canonical answers, the vote keys. Both are filled by `score`.
        gold_B: the tasks' grades if the rewards are a model's scores; None if the rewards are the grades.
        failures: from `score`, a sentence for each completion whose grading failed, also for those of replaced groups.
        truncated_B: True where a limit of tokens or turns cut the completion.
        texts: the text that the policy wrote, which is graded. transcripts: the same with the observations.
        calls_B, failed_calls_B: numbers of tool calls that were answered, and that were answered with an error; None if
            no task has a tool.
    """

    prompts: Prompts
    completion_ids_B_T: Tensor
    mask_B_T: Tensor
    sampler_logps_B_T: Tensor
    temperature_B: Tensor
    truncated_B: Tensor
    texts: list[str]
    rewards_B: Tensor | None = None
    answers: list[Hashable | None] | None = None
    discarded_tokens: int = 0  # sampled for groups that were drawn again; counted, not trained on
    present_B_T: Tensor | None = None  # False on padding; None: mask_B_T, as every token but padding was sampled
    transcripts: list[str] | None = None  # None: texts, as no tool was called
    calls_B: Tensor | None = None
    failed_calls_B: Tensor | None = None
    gold_B: Tensor | None = None
    failures: list[str] = field(default_factory=list)

    def __post_init__(self):
        if self.present_B_T is None:
            self.present_B_T = self.mask_B_T
        if self.transcripts is None:
            self.transcripts = self.texts

    @property
    def prompt_ids_P_S(self) -> Tensor:
        return self.prompts.prompt_ids_P_S

    @property
    def prompt_mask_P_S(self) -> Tensor:
        return self.prompts.prompt_mask_P_S

    @property
    def group(self) -> int:
        return len(self.completion_ids_B_T) // len(self.prompts.problems)

    @property
    def tokens(self) -> int:
        """Number of sampled continuation tokens, with EOS and with those of replaced groups."""
        return int(self.mask_B_T.sum()) + self.discarded_tokens

    def replace(self, prompts: Tensor, fresh: "Rollouts") -> None:
        """Put other completions in the place of some prompts' groups.

        Args:
            prompts: int64, indices of the prompts among the P.
            fresh: graded rollouts of these prompts, in this order.
        """
        rows = (prompts.unsqueeze(1) * self.group + torch.arange(self.group).to(prompts)).flatten()
        self.discarded_tokens += int(self.mask_B_T[rows].sum())
        width = max(self.mask_B_T.shape[1], fresh.mask_B_T.shape[1])
        for name in ("completion_ids_B_T", "mask_B_T", "sampler_logps_B_T", "present_B_T"):
            whole = _widen(getattr(self, name), width)
            whole[rows] = _widen(getattr(fresh, name), width)
            setattr(self, name, whole)
        for name in ("truncated_B", "rewards_B", "gold_B", "calls_B", "failed_calls_B"):
            if getattr(self, name) is not None:
                getattr(self, name)[rows] = getattr(fresh, name)
        for name in ("texts", "answers", "transcripts"):
            for row, value in zip(rows.tolist(), getattr(fresh, name), strict=True):
                getattr(self, name)[row] = value
        self.failures += fresh.failures

    def grouped(self, values: list) -> list[list]:
        """A flat list over B as P lists of G."""
        G = self.group
        return [values[i : i + G] for i in range(0, len(values), G)]


class RolloutEngine:
    """The common part of both engines: prompts go in as tokens, completions come out as `Rollouts`.

    Args:
        model: the causal language model that is being trained (unwrapped).
        tokenizer: its tokenizer.
        config: uses seed, top_p, max_completion_tokens, max_sequence_tokens, rollout_batch, max_turns,
            max_observation_characters, and the settings that `PromptFormat` reads.
        tasks: by name; a completion may call the tool of its problem's task.
    Raises:
        ConfigError: no token would end a completion; also the errors of `PromptFormat`.
    """

    def __init__(self, model: nn.Module, tokenizer, config: TrainConfig, tasks: dict[str, Task] | None = None):
        self.model, self.tokenizer, self.config = model, tokenizer, config
        self.tools = {name: tool for name, task in (tasks or {}).items() if (tool := tool_of(task))}
        self.closing_ids = closing_tokens(tokenizer, self.tools) if self.tools else None
        self.format = PromptFormat(tokenizer, config)
        stop = self.format.stop_ids(model)
        if not stop:
            raise ConfigError(
                f"model {config.model!r} has no end-of-sequence token: set one, or name a token in stop_tokens."
            )
        self.stop_ids = torch.tensor(stop)

    @property
    def device(self):
        return next(self.model.parameters()).device

    def encode(self, problems: list[Problem], slots: list[int]) -> Prompts:
        """Tokenise problems by `PromptFormat`, and pad on the left.

        Raises:
            ConfigError: a prompt has no tokens, or leaves no room for max_completion_tokens within max_sequence_tokens.
        """
        ids = self.format.ids(self.texts_of(problems))
        longest = max(map(len, ids))
        if min(map(len, ids)) == 0:
            raise ConfigError("a prompt has no tokens: correct the task, or drop the problem.")
        if longest > self.prompt_room:
            raise ConfigError(
                f"a prompt has {longest} tokens, more than max_sequence_tokens - max_completion_tokens "
                f"= {self.prompt_room}: raise max_sequence_tokens or drop long problems."
            )
        batch = self.tokenizer.pad({"input_ids": ids}, padding_side="left", return_tensors="pt")
        return Prompts(
            list(problems),
            torch.tensor(slots, device=self.device),
            batch["input_ids"].to(self.device),
            batch["attention_mask"].to(self.device),
        )

    @property
    def prompt_room(self) -> int:
        """The most tokens that a prompt may have."""
        return self.config.max_sequence_tokens - self.config.max_completion_tokens

    def fits(self, problems: list[Problem]) -> list[bool]:
        """Whether each prompt leaves room for an answer, as `encode` requires."""
        if not problems:
            return []
        return [len(ids) <= self.prompt_room for ids in self.format.ids(self.texts_of(problems))]

    def texts_of(self, problems: list[Problem]) -> list[str]:
        """The prompts as the model sees them."""
        return self.format.texts([problem.prompt for problem in problems])

    def open(self, prompts: Prompts) -> list:
        """Prepare the prompts for sampling, once for all phases of an update."""
        raise NotImplementedError

    @torch.no_grad()
    def sample(
        self, prompts: Prompts, prefixes: list, group: int, tau_P: Tensor, phase: str, update: int,
        first_sample: int = 0,
    ) -> Rollouts:  # fmt: skip
        """Sample `group` completions for each prompt; tau 0 decodes greedily.

        Args:
            prompts, prefixes: from `encode` and `open`.
            group: completions per prompt.
            tau_P: temperature of each prompt, >= 0.
            phase, update: key the random streams.
            first_sample: index of each group's first completion in its random stream.
        """
        rows = prompt_rows(prompts, group, tau_P, first_sample, self.tools)
        converse(self, rows, self.first_turn(rows, prefixes, group, phase, update), phase, update)
        return collect(prompts, rows, tau_P.repeat_interleave(group), self.tokenizer, self.stop_ids, bool(self.tools))

    def first_turn(self, rows: list[Row], prefixes: list, group: int, phase: str, update: int) -> list[Turn]:
        """Sample the first turn of each row, groups contiguous, from the prompts that `open` prepared."""
        raise NotImplementedError

    def turn(self, rows: list[Row], phase: str, update: int) -> list[Turn]:
        """Sample a later turn of each row."""
        raise NotImplementedError

    def rest(self) -> None:
        """Free memory that only sampling needs: nothing is sampled until the next `open`."""

    def close(self) -> None:
        """End sampling and free all of the engine's memory; whoever makes an engine closes it."""

    def call(self, row: Row, ids: list[int]) -> str | None:
        """The tool call in a turn's tokens; None if there is none."""
        if row.tool is None:
            return None
        return row.tool.call(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


class TransformersEngine(RolloutEngine):
    """Samples with the model that is being trained, through transformers."""

    @torch.no_grad()
    def open(self, prompts: Prompts) -> list:
        """Compute the prompts once; every phase of an update samples from the result."""
        chunks = torch.arange(len(prompts.problems), device=self.device).split(self.config.rollout_batch)
        prefixes = []
        for index in chunks:
            part = prompts.select(index)
            with _inference_mode(self.model):
                out = prefill(self.model, part.prompt_ids_P_S, part.prompt_mask_P_S)
            prefixes.append((part, out.past_key_values, out.logits[:, -1]))
        return prefixes

    def first_turn(self, rows: list[Row], prefixes: list, group: int, phase: str, update: int) -> list[Turn]:
        turns, start = [], 0
        with _inference_mode(self.model):
            for part, whole, logits_P_V in prefixes:
                every = torch.arange(len(part.problems), device=self.device).repeat_interleave(group)
                for prompt_of in every.split(self.config.rollout_batch):
                    cache = copy.deepcopy(whole)
                    cache.batch_select_indices(prompt_of)
                    seen, mine = part.prompt_mask_P_S[prompt_of], rows[start : start + len(prompt_of)]
                    turns += self._decode(cache, logits_P_V[prompt_of], seen, mine, phase, update)
                    start += len(prompt_of)
        return turns

    @torch.no_grad()
    def turn(self, rows: list[Row], phase: str, update: int) -> list[Turn]:
        """Sample a later turn of each row. The row's whole text is read again in one forward pass."""
        turns, size = [], self.config.rollout_batch
        for part in (rows[i : i + size] for i in range(0, len(rows), size)):
            texts = [row.prompt_ids + row.ids for row in part]
            width = max(map(len, texts))
            mask = torch.tensor([[0] * (width - len(text)) + [1] * len(text) for text in texts], device=self.device)
            pad = self.tokenizer.pad_token_id
            ids = torch.tensor([[pad] * (width - len(text)) + text for text in texts], device=self.device)
            with _inference_mode(self.model):
                out = prefill(self.model, ids, mask)
                turns += self._decode(out.past_key_values, out.logits[:, -1], mask, part, phase, update)
        return turns

    def _decode(self, cache, logits, seen, rows: list[Row], phase: str, update: int) -> list[Turn]:
        """Decode one turn token by token, dropping finished rows from the batch.

        Args:
            cache, logits, seen: keys and values of the rows' tokens, their last logits (B, V), their mask (B, S).
        """
        device = self.device

        def each(values):
            return torch.tensor(list(values), device=device)

        slots, sample_of, tau = each(r.slot for r in rows), each(r.sample for r in rows), each(r.tau for r in rows)
        drawn, room = each(row.drawn for row in rows), each(row.room(self.config) for row in rows)
        B, T = len(rows), int(room.max())
        stop_ids = self.stop_ids.to(device)
        ids_B_T = torch.zeros(B, T, dtype=torch.long, device=device)
        mask_B_T = torch.zeros(B, T, dtype=torch.bool, device=device)
        logps_B_T = torch.zeros(B, T, device=device)
        cut_B = torch.zeros(B, dtype=torch.bool, device=device)
        calls: list[str | None] = [None] * B

        live = torch.arange(B, device=device)  # index of the row to which each row of the batch belongs
        position = seen.sum(dim=1, keepdim=True) - 1
        for t in range(T):
            u = uniforms(self.config.seed, phase, update, slots, sample_of, drawn + t)
            ids, logps = sample_token(logits, tau, self.config.top_p, u)
            ids_B_T[live, t], logps_B_T[live, t], mask_B_T[live, t] = ids, logps, True
            ended = torch.isin(ids, stop_ids)
            for i in self._may_close(ids, ended):
                row = int(live[i])
                calls[row] = self.call(rows[row], ids_B_T[row, : t + 1].tolist())
                ended[i] = calls[row] is not None
            full = room == t + 1
            cut_B[live] = full & ~ended
            alive = ~(ended | full)
            if not alive.any():
                break
            if not alive.all():
                keep = alive.nonzero().squeeze(1)
                live, slots, sample_of, tau = live[keep], slots[keep], sample_of[keep], tau[keep]
                drawn, room = drawn[keep], room[keep]
                ids, seen, position = ids[keep], seen[keep], position[keep]
                cache.batch_select_indices(keep)
            seen = torch.cat([seen, seen.new_ones(len(live), 1)], dim=1)
            position = position + 1
            out = self.model(
                input_ids=ids.unsqueeze(1),
                attention_mask=seen,
                position_ids=position,
                past_key_values=cache,
                use_cache=True,
            )
            logits = out.logits[:, -1]
        return [
            Turn(ids[:n], logps[:n], call, cut)
            for ids, logps, n, call, cut in zip(
                ids_B_T.tolist(), logps_B_T.tolist(), mask_B_T.sum(dim=1).tolist(), calls, cut_B.tolist(), strict=True
            )
        ]

    def _may_close(self, ids: Tensor, ended: Tensor) -> list[int]:
        """The rows whose token may complete a call; they are few, so few texts are decoded."""
        if not self.tools:
            return []
        return (torch.isin(ids, self.closing_ids.to(ids.device)) & ~ended).nonzero().squeeze(1).tolist()


class VLLMEngine(RolloutEngine):
    """Samples with vLLM; `open` gives it the weights of the model that is being trained.

    Raises:
        ConfigError: vLLM is not installed.
    """

    def __init__(self, model: nn.Module, tokenizer, config: TrainConfig, tasks: dict[str, Task] | None = None):
        super().__init__(model, tokenizer, config, tasks)
        closing_ids = [] if self.closing_ids is None else self.closing_ids.tolist()
        self.vllm = VLLM(model, config, self.stop_ids.tolist(), closing_ids, self.call)

    def open(self, prompts: Prompts) -> list:
        """Push the weights if they have changed; vLLM keeps its computed prompts until the weights change."""
        self.vllm.load(self.model)
        return []

    def first_turn(self, rows: list[Row], prefixes: list, group: int, phase: str, update: int) -> list[Turn]:
        return self.turn(rows, phase, update)

    def turn(self, rows: list[Row], phase: str, update: int) -> list[Turn]:
        return self.vllm.turn(rows, phase, update)

    def rest(self) -> None:
        self.vllm.sleep()

    def close(self) -> None:
        self.vllm.close()


ENGINES = {"transformers": TransformersEngine, "vllm": VLLMEngine}


def make_engine(
    model: nn.Module, tokenizer, config: TrainConfig, tasks: dict[str, Task] | None = None
) -> RolloutEngine:  # fmt: skip
    """The engine that `config.engine` names; for its arguments see `RolloutEngine`.

    Raises:
        ConfigError: the model has no end-of-sequence token, or vLLM is selected but not installed.
    """
    return ENGINES[config.engine](model, tokenizer, config, tasks)


def closing_tokens(tokenizer, tools: dict[str, Tool]) -> Tensor:
    """Tokens that may complete a call: their text contains a character with which a call ends."""
    ends = set().union(*(tool.ends for tool in tools.values()))
    texts = tokenizer.batch_decode([[i] for i in range(len(tokenizer))], skip_special_tokens=True)
    return torch.tensor([i for i, text in enumerate(texts) if ends & set(text)], dtype=torch.long)


def prompt_rows(prompts: Prompts, group: int, tau_P: Tensor, first_sample: int, tools: dict[str, Tool]) -> list[Row]:
    """`group` empty rows for each prompt, with the groups contiguous."""
    ids_of = zip(prompts.prompt_ids_P_S.tolist(), prompts.prompt_mask_P_S.tolist(), strict=True)
    prompt_ids = [[token for token, real in zip(ids, mask, strict=True) if real] for ids, mask in ids_of]
    return [
        Row(slot, sample, tau, tools.get(problem.task), ids)
        for problem, slot, tau, ids in zip(
            prompts.problems, prompts.slots_P.tolist(), tau_P.tolist(), prompt_ids, strict=True
        )
        for sample in range(first_sample, first_sample + group)
    ]


def collect(
    prompts: Prompts, rows: list[Row], temperature_B: Tensor, tokenizer, stop_ids: Tensor, with_tools: bool
) -> Rollouts:  # fmt: skip
    """Finished completions as tensors on the prompts' device, and as texts without EOS and pads."""
    device, stop = prompts.prompt_ids_P_S.device, set(stop_ids.tolist())

    def padded(values_of, fill):
        width = max(len(row.ids) for row in rows)
        return torch.tensor([[*v, *[fill] * (width - len(v))] for v in map(values_of, rows)], device=device)

    def texts(kept):
        ids = [[i for i, sampled in zip(row.ids, row.sampled, strict=True) if kept(i, sampled)] for row in rows]
        return tokenizer.batch_decode(ids, clean_up_tokenization_spaces=False)

    def each(values):
        return torch.tensor(list(values), device=device)

    rollouts = Rollouts(
        prompts,
        padded(lambda row: row.ids, tokenizer.pad_token_id),
        padded(lambda row: row.sampled, False),
        padded(lambda row: row.logps, 0.0),
        temperature_B,
        each(row.truncated for row in rows),
        texts(lambda i, sampled: sampled and i not in stop),
    )
    if with_tools:
        rollouts.present_B_T = padded(lambda row: [True] * len(row.ids), False)
        rollouts.transcripts = texts(lambda i, sampled: i not in stop)
        rollouts.calls_B, rollouts.failed_calls_B = each(r.calls for r in rows), each(r.failed for r in rows)
    return rollouts


def sample_token(logits_B_V: Tensor, tau_B: Tensor, top_p: float, u_B: Tensor) -> tuple[Tensor, Tensor]:
    """Draw one token a row from the nucleus of softmax(logits / tau), at the uniform number u.

    nucleus: the fewest most likely tokens whose mass reaches p; the most likely one is always kept
    token: the first in vocabulary order whose cumulative kept mass exceeds u * (kept mass)

    Only a few rows are handled at a time: beside the logits, memory holds the float64 values of `LOGITS_AT_ONCE` of
    them.

    Args:
        logits_B_V: logits, float.
        tau_B: temperatures, >= 0; rows at 0 take the most likely token.
        top_p: p in (0, 1] (Holtzman et al. 2020).
        u_B: float64 in [0, 1).
    Returns:
        ids_B, and their log-probabilities under the distribution that drew them.
    """
    ids_B, logps_B = (torch.empty_like(tau_B, dtype=dtype) for dtype in (torch.long, torch.float32))
    size = max(1, LOGITS_AT_ONCE // logits_B_V.shape[1])
    for start in range(0, len(tau_B), size):
        rows = slice(start, start + size)
        ids_B[rows], logps_B[rows] = _sample_rows(logits_B_V[rows], tau_B[rows], top_p, u_B[rows])
    return ids_B, logps_B


def _sample_rows(logits_B_V: Tensor, tau_B: Tensor, top_p: float, u_B: Tensor) -> tuple[Tensor, Tensor]:
    greedy_B = tau_B == 0
    scale_B_1 = torch.where(greedy_B, 1.0, tau_B).double().unsqueeze(1)
    probs = (logits_B_V.double() / scale_B_1).softmax(dim=-1)
    if top_p < 1.0:
        ordered, order = probs.sort(dim=-1, descending=True, stable=True)
        outside = ordered.cumsum(dim=-1).sub_(ordered) >= top_p
        probs = probs.masked_fill_(outside.scatter(-1, order, outside), 0.0)
        del ordered, order, outside
    mass = probs.cumsum(dim=-1)
    ids = torch.searchsorted(mass, u_B.unsqueeze(1) * mass[:, -1:], right=True).squeeze(1)
    # u * mass can round up to the whole mass: then take the last token with a positive probability.
    last = probs.shape[1] - 1 - (probs > 0).byte().flip(-1).argmax(dim=-1)
    ids = torch.where(greedy_B, logits_B_V.argmax(dim=-1), torch.minimum(ids, last))
    chosen = probs.gather(1, ids.unsqueeze(1)).squeeze(1) / mass[:, -1]
    return ids, torch.where(greedy_B, 0.0, chosen.log()).float()


def score(rollouts: Rollouts, tasks: dict[str, Task], failed_grading: str = "zero") -> float:
    """Grade every completion in place; returns the seconds it took.

    Args:
        rollouts: receives rewards_B, answers and failures.
        tasks: by name.
        failed_grading: a completion that cannot be graded counts as reward 0 ("zero"), or raises ("raise").
    Raises:
        GradingError: grading failed, and `failed_grading` is "raise"; the message names task, problem and completion.
        SandboxRefused: a task runs programs, and this machine offers no sandbox.
    """
    start = time.perf_counter()
    problems = [problem for problem in rollouts.prompts.problems for _ in range(rollouts.group)]
    grades, failures = zip(
        *(
            graded(tasks[problem.task].grade, problem, text, failed_grading)
            for problem, text in zip(problems, rollouts.texts, strict=True)
        ),
        strict=True,
    )
    rewards = [grade.reward for grade in grades]
    rollouts.rewards_B = torch.tensor(rewards, dtype=torch.float32, device=rollouts.mask_B_T.device)
    rollouts.answers = [grade.answer for grade in grades]
    rollouts.failures = [failure for failure in failures if failure is not None]
    return time.perf_counter() - start


@contextmanager
def _inference_mode(model: nn.Module):
    """Leave training mode for the block: in training mode, activation checkpointing drops the cache."""
    training = model.training
    try:
        yield model.eval()
    finally:
        model.train(training)


def _widen(values_B_T: Tensor, width: int) -> Tensor:
    """Pad dimension T on the right to `width`."""
    return nn.functional.pad(values_B_T, (0, width - values_B_T.shape[1]))

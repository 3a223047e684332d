"""Every setting of a run, in one flat and typed dataclass.

A run's configuration is data: it is built from keyword arguments or YAML, refuses unknown keys and mistyped values, and
is saved in the run's folder. Defaults are AGPO's §4.1 where the paper states a value. It does not state the number of
gradient steps per rollout batch; the default is one under which the clip radius matters (4 minibatches x 2 epochs).
"""

import copy
import dataclasses
import functools
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from agpo_core.settings import Above, AnyText, AtLeast, ConfigError, Within, kinds, settle, short, unknown

# Bumped by hand when a change of code, or of a default, alters the numbers of a run: recorded runs are then no longer
# reused.
NUMERICS_VERSION = 2  # norms and biases are no longer decayed

# No run makes sense beyond these limits: it would not fit into any machine, or would not end.
Problems = Annotated[int, AtLeast(0, most=10_000_000)]
Prompts = Annotated[int, AtLeast(1, most=65_536)]
Completions = Annotated[int, AtLeast(1, most=65_536)]
Tokens = Annotated[int, AtLeast(1, most=1_048_576)]
Temperature = Annotated[float, AtLeast(1.0e-6, most=100.0)]
Radius = Annotated[float, Within("(0, 1)")]  # 1 - epsilon bounds a ratio, which is positive
Weight = Annotated[float, AtLeast(0)]
Rate = Annotated[float, AtLeast(1.0e-12, most=10.0)]  # a smaller one moves no float32 weight
Share = Annotated[float, Within("(0, 1]")]


@dataclass(frozen=True)
class TrainConfig:
    """All settings of one training run; field comments give unit, range and source."""

    # -- what is trained, on what
    method: str = "grpo"  # a name in recipes.RECIPES
    seed: Annotated[int, Within("[0, 2**31)")] = 42  # keys every random stream of the run
    model: str = "tiny-qwen2-a"  # an embedded model, a folder, or a hub id
    tasks: tuple[str, ...] = ()  # names known to tasks.get_task
    data_dir: str | None = None  # folder of a benchmark's official files; None: from the hub
    train_on_evaluation_sets: bool = False  # train on a part of benchmarks that are for evaluation only
    train_problems: Annotated[int, AtLeast(1, most=10_000_000)] | None = None  # per task; None: all (R++ Table 2)
    test_tasks: tuple[str, ...] = ()  # tasks of the test at the end; empty: those of tasks (R++ Fig. 4)
    decontaminate: tuple[str, ...] = ()  # evaluation sets whose problems are left out of training: cmath, cmath:dev
    lora_rank: Annotated[int, AtLeast(0, most=4096)] = 0  # 0 trains all weights
    # where pi_ref comes from; auto: adapters off under LoRA, else a frozen copy
    reference: Literal["auto", "frozen_copy", "adapter_disabled", "none"] = "auto"

    # -- what the model reads, and what ends its turn (rollouts/prompts.py)
    chat_template: Literal["auto", "always", "never"] = "auto"  # auto: where the tokenizer has one; never: as text
    system_prompt: Annotated[str, AnyText] | None = None  # first message of every chat; None: the template's own
    template_arguments: tuple[str, ...] = ()  # name=value, the value JSON: enable_thinking=false
    stop_tokens: tuple[Annotated[str, AnyText], ...] = ()  # texts of tokens that end a completion, beside the model's

    # -- horizon: learning rate, evaluations and stop are functions of the consumed share of it
    horizon_unit: Literal["tokens", "updates", "seconds"] = "tokens"
    horizon: Annotated[float, AtLeast(0, most=math.inf)] = 100_000.0  # in horizon_unit; 0 evaluates the start and stops

    # -- sampling
    engine: Literal["transformers", "vllm"] = "transformers"  # what samples completions
    engine_memory: Annotated[float, Within("(0, 1)")] = 0.5  # share of a GPU's memory that vLLM takes while it samples
    prompts_per_update: Prompts = 36  # P, over all ranks
    group_size: Completions = 8  # G (paper: 8)
    probe_group_size: Completions | None = None  # G of the probe; None: group_size
    probe_share: Share = 1.0  # of an update's prompts that are probed, rounded up
    probe_source: Literal["probe", "previous_update"] = "probe"  # whose rollouts the controllers see
    tau_base: Temperature = 1.0  # (paper: 1.0)
    top_p: Share = 0.95  # nucleus (paper: .95)
    max_completion_tokens: Tokens = 24
    max_sequence_tokens: Annotated[int, AtLeast(1, most=16_777_216)] = 1024  # prompt + continuation (paper: 1024)
    max_turns: Annotated[int, AtLeast(1, most=1000)] = 4  # of a completion with a tool; the last gets no answer
    max_observation_characters: Annotated[int, AtLeast(1, most=1_048_576)] = 512  # of a tool's output; the rest is cut
    rollout_batch: Annotated[int, AtLeast(1, most=1_048_576)] = 512  # sequences decoded at once; never changes a sample

    # -- rewards and advantages
    reward: Literal["task", "model"] = "task"  # what is maximised: the task's grade, or the score of reward_model
    reward_model: str | None = None  # a folder in the model's own, a folder or a hub id; None: the task's grade
    failed_grading: Literal["zero", "raise"] = "zero"  # when a grader fails: reward 0, or the run ends
    reward_clip: Annotated[float, Above(0)] | None = None  # bounds rewards to ±reward_clip (R++ App. B.2); None: off
    reward_scale: Annotated[float, Above(0)] = 1.0  # then rewards are multiplied by it (R++ App. B.2)
    advantage: Literal[  # advantages.py has a function for each
        "group", "dr_grpo", "leave_one_out", "greedy_baseline", "reinforce_pp", "reinforce_pp_baseline", "mixed", "gae"
    ] = "group"
    credit: Literal["return_to_go", "last_token"] = "return_to_go"  # of reinforce_pp
    population: Literal["tokens", "sequences"] = "tokens"  # what reinforce_pp and its baseline form normalise over
    convention: Literal["paper", "openrlhf", "verl"] = "paper"  # of global normalisation
    critic: Literal["none", "head", "model"] = "none"  # for gae: a head on the policy, or a model of its size
    gae_lambda: Annotated[float, Within("[0, 1]")] = 0.95
    gae_gamma: Annotated[float, Within("[0, 1]")] = 1.0
    value_clip: Annotated[float, Above(0)] = 0.2  # units of return
    value_weight: Weight = 0.1  # of the value loss, which is added to the policy's
    critic_learning_rate: Rate | None = None  # peak; None: learning_rate

    # -- objective
    dispersion: Literal["std", "mad", "iqr"] = "std"  # Eqs. 1, 4, 9
    dispersion_fallback: Literal["std", "zero", "error"] = "std"
    equal_groups: Literal["keep", "drop", "resample"] = "keep"
    ratio: Literal["token", "sequence", "sequence_geo"] = "token"
    ratio_temperature: Literal["rollout", "model"] = "rollout"
    aggregation: Literal["sequence_mean", "token_mean", "constant"] = "sequence_mean"
    beta: Annotated[float, AtLeast(0, most=1000.0)] = 0.03  # weight of the KL to the reference (paper: .03)
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    kl_placement: Literal["loss", "reward"] = "loss"
    kl_control: Literal["fixed", "adaptive"] = "fixed"  # adaptive: beta follows kl_target (Ziegler et al. 2019)
    kl_target: Annotated[float, Above(0)] = 6.0  # nats per sequence
    kl_horizon: Annotated[float, Above(0, most=1.0e24)] = 10_000.0  # sequences

    # -- clip radius (Eq. 4)
    clip: Literal["fixed", "adaptive"] = "fixed"
    epsilon_base: Radius = 0.2  # (paper: .2)
    epsilon_min: Radius = 0.05  # (paper: .05)
    epsilon_max: Radius = 0.4  # >= epsilon_min (paper: .4)
    alpha: Weight = 1.0  # of the dispersion (paper: 1.0)
    gamma: Weight = 0.5  # of the step KL (paper: .5)
    delta: Weight = 0.2  # of the vote entropy (paper: .2)
    zeta: Weight = 0.05  # of the skewness (paper: .05)
    clip_entropy: Literal["raw", "ratio_ema", "normalised", "off"] = "raw"
    step_kl: Literal["clamp", "unclamped", "ema"] = "clamp"
    step_kl_estimator: Literal["k1", "k3"] = "k1"

    # -- sampling temperature (Eqs. 9-12)
    temperature: Literal["fixed", "adaptive"] = "fixed"
    tau_min: Temperature = 0.5  # (paper: .5)
    tau_max: Temperature = 1.5  # >= tau_min (paper: 1.5)
    sensitivity: Weight = 0.15  # lambda (paper: .15)
    momentum: Annotated[float, Within("[0, 1)")] = 0.95  # rho_U (paper: .95)
    weights: tuple[Weight, ...] = (1.0, 1.0, 0.1)  # w_r, w_e, w_k (paper: 1, 1, .1)
    baseline_start: Literal["zero", "first", "debiased"] = "zero"
    centring: Literal["absolute", "relative"] = "absolute"

    # -- statistics of both controllers
    signals_mask: tuple[Annotated[int, Within("[0, 1]")], ...] = (1, 1, 1, 1)  # sigma, skewness, votes, step KL[, H]
    skewness: Literal["g1", "G1", "b1"] = "g1"
    skewness_guard: Literal["std", "mode"] = "std"
    sigma_min: Annotated[float, Above(0)] = 1.0e-6  # (paper: 1e-6)
    kappa_max: Annotated[float, Above(0)] = 10.0  # (paper: 10)
    missing_answers: Literal["shared", "drop", "unique"] = "shared"
    controller_scope: Literal["update", "prompt"] = "update"

    # -- optimisation
    learning_rate: Rate = 1.5e-5  # peak (paper: 1.5e-5)
    warmup: Annotated[float, Within("[0, 1)")] = 0.05  # share of the horizon over which the rate rises linearly
    adam_betas: tuple[Annotated[float, Within("[0, 1)")], ...] = (0.9, 0.95)  # (paper: .9, .95)
    weight_decay: Annotated[float, AtLeast(0, most=100.0)] = 0.1  # (paper: .1); not of norms and biases
    max_grad_norm: Annotated[float, Above(0)] = 1.0  # (paper: 1.0)
    minibatches: Annotated[int, AtLeast(1)] = 4  # gradient steps per epoch over a rollout batch
    epochs: Annotated[int, AtLeast(1, most=1000)] = 2  # passes over a rollout batch
    micro_batch_prompts: Prompts | None = None  # prompts per forward pass on a rank; None: the minibatch
    dtype: Literal["float32", "bfloat16"] = "float32"
    attn_implementation: Literal["auto", "eager", "sdpa", "flash_attention_2"] = "auto"  # auto: as the model needs
    activation_checkpointing: bool = False
    shared_prompt: bool = True  # compute a group's prompt once in the training forward

    dpo_beta: Annotated[float, Above(0, most=1000.0)] = 0.1  # of DPO's loss

    # -- evaluation and checkpoints
    eval_every: Share = 0.25  # of the horizon between evaluations on dev
    dev_problems: Problems | None = 100  # per task; 0: no evaluation on dev; None: all that the split has
    test_problems: Problems | None = 400  # per task, once at the end; 0: none; None: all
    test_samples: Annotated[int, AtLeast(0, most=65_536)] = 0  # per problem at the end, at tau_base, beside greedy
    checkpoint_every: Share = 0.25  # of the horizon between checkpoints

    def __post_init__(self):
        settle(self)
        _check_together(self)

    @property
    def template_values(self) -> dict:
        """The settings in `template_arguments`, as {name: value}.

        Raises:
            ConfigError: one is not name=value with a JSON value, or a name comes twice.
        """
        values = {}
        for text in self.template_arguments:
            name, _, value = text.partition("=")
            try:
                if not name.isidentifier() or name in values:
                    raise ValueError
                values[name] = json.loads(value)
            except ValueError:
                raise ConfigError(
                    f"template_arguments must be texts name=value, each name once, with a value in JSON, such as "
                    f'enable_thinking=false or effort="low"; got {text!r}.'
                ) from None
        return values

    @property
    def probe_size(self) -> int:
        """Completions per prompt in the probe."""
        return self.probe_group_size or self.group_size

    @property
    def probed_prompts(self) -> int:
        """Prompts of an update that are probed."""
        return math.ceil(self.probe_share * self.prompts_per_update)

    @property
    def adapts(self) -> bool:
        """Whether a controller of clip radius or temperature reads reward statistics."""
        return "adaptive" in (self.clip, self.temperature)

    @property
    def needs_probe(self) -> bool:
        """Whether a probe is sampled, which is done only where a controller reads it."""
        return self.adapts and self.probe_source == "probe"

    def to_dict(self) -> dict:
        """Plain Python values, in the order of the fields; tuples become lists."""
        values = {name: getattr(self, name) for name in FIELDS}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def replace(self, **params) -> "TrainConfig":
        """A copy with some settings changed, checked like a new one."""
        _refuse_unknown(params)
        return dataclasses.replace(self, **params)

    @classmethod
    def from_dict(cls, params: dict) -> "TrainConfig":
        """Build from a mapping of field names; unknown keys raise."""
        _refuse_unknown(params)
        return cls(**params)

    def save(self, path) -> None:
        """Write every setting, resolved, as YAML."""
        import yaml

        with open(path, "w", encoding="utf-8") as file:
            yaml.safe_dump(self.to_dict(), file, sort_keys=False)

    def hash(self) -> str:
        """Ten hex digits that identify a run's result: a hash of changed settings and of the numerics version.

        Settings at their default do not enter the hash: a setting that is added later leaves the hash of earlier runs
        alone.
        """
        settings = self.to_dict()
        changed = {f.name: settings[f.name] for f in dataclasses.fields(self) if getattr(self, f.name) != f.default}
        text = json.dumps([NUMERICS_VERSION, changed], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]


FIELDS = {f.name: f for f in dataclasses.fields(TrainConfig)}

KINDS = kinds(TrainConfig)  # name: type, with its range

HORIZONS = {"tokens": 1.0e13, "updates": 1.0e8, "seconds": 1.0e9}  # the longest, by unit: years on a cluster
COMPLETIONS = 2**20  # the most of one update
TOKENS = 2**32  # the most of one update: completions x max_completion_tokens


def read_yaml(path) -> dict:
    """The settings in a YAML file: `key: value`, each key once.

    Args:
        path: a file in UTF-8.
    Returns:
        dict, empty for an empty file.
    Raises:
        ConfigError: the file cannot be read, is not such a file, or holds a key twice; the message names the line.
    """
    import yaml

    name = Path(path).name
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8 at byte {error.start}: save it as UTF-8.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}): write the settings there.") from error
    try:
        settings = copy.deepcopy(_parsed(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        place = f"{name}, line {mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it is not YAML"
        raise ConfigError(f"{place}: {problem}. Write lines of the form `key: value`.") from error
    except (ValueError, TypeError, RecursionError, OverflowError, AttributeError, KeyError) as error:
        raise ConfigError(f"{name} holds a value that YAML cannot read ({error}): correct it.") from error
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise ConfigError(f"{name} must hold lines of the form `key: value`.")
    for key in settings:
        if not isinstance(key, str):
            raise ConfigError(f"{name}: the key {short.repr(key)} is not text: keys are names of settings.")
    return settings


@functools.lru_cache(maxsize=64)  # files are read again and again, and PyYAML takes a tenth of a second for a long one
def _parsed(text: str):
    import yaml

    return yaml.load(text, Loader=_loader())


@functools.cache
def _loader():
    """PyYAML's safe loader, which builds plain values alone, and refuses a key that stands twice."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node, deep=False):
            seen = set()
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                if (key.tag, key.value) in seen if isinstance(key, yaml.ScalarNode) else False:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} stands twice: keep one", key.start_mark
                    )
                if isinstance(key, yaml.ScalarNode):
                    seen.add((key.tag, key.value))
            return super().construct_mapping(node, deep)

    return Loader


def _refuse_unknown(params: dict) -> None:
    for key in params:
        if key not in FIELDS:
            hint = unknown(key, FIELDS, "see agpo_core.config.TrainConfig.")
            raise ConfigError(f"unknown setting {short.repr(key)}: {hint}")


def _check_together(c: TrainConfig) -> None:
    """Refuse settings that do not go together; each alone has been checked."""

    def require(ok: bool, name: str, rule: str) -> None:
        if not ok:
            raise ConfigError(f"{name} must be {rule}; got {short.repr(getattr(c, name))}.")

    require(c.epsilon_max >= c.epsilon_min, "epsilon_max", "at least epsilon_min")
    require(c.tau_max >= c.tau_min, "tau_max", "at least tau_min")
    require(len(c.weights) == 3, "weights", "three numbers: w_r, w_e, w_k")
    require(len(c.signals_mask) in (4, 5), "signals_mask", "4 bits, or 5 with H")
    require(len(c.adam_betas) == 2, "adam_betas", "two numbers")
    for name in ("tasks", "test_tasks", "decontaminate"):
        require(len(set(getattr(c, name))) == len(getattr(c, name)), name, "a list in which no name stands twice")
    _check_sizes(c, require)
    require(
        c.prompts_per_update % c.minibatches == 0,
        "prompts_per_update",
        f"a multiple of minibatches ({c.minibatches}): groups are never split",
    )
    if c.clip == "adaptive":
        require(c.epsilon_base <= c.epsilon_max, "epsilon_base", f"at most epsilon_max ({c.epsilon_max})")
    if c.temperature == "adaptive":
        bounds = f"between tau_min ({c.tau_min}) and tau_max ({c.tau_max})"
        require(c.tau_min <= c.tau_base <= c.tau_max, "tau_base", bounds)
    if c.beta > 0 and c.reference == "none":
        raise ConfigError("beta > 0 needs a reference policy: set reference, or beta to 0.0.")
    if c.reference == "adapter_disabled" and c.lora_rank == 0:
        raise ConfigError("reference 'adapter_disabled' needs adapters: set lora_rank above 0.")
    if c.kl_estimator == "k1" and c.kl_placement == "loss" and c.beta > 0:
        raise ConfigError(
            "kl_estimator k1 as a loss does nothing: its expected gradient is zero and does not see "
            "the reference. Use k2 or k3, or kl_placement reward."
        )
    if c.kl_estimator != "k1" and c.kl_placement == "reward" and c.beta > 0:
        raise ConfigError(
            f"kl_placement reward takes only kl_estimator k1, got {c.kl_estimator}: use k1, or kl_placement loss."
        )
    grouped = ("group", "dr_grpo", "leave_one_out", "reinforce_pp_baseline", "mixed")
    if c.group_size == 1 and c.advantage in grouped:
        raise ConfigError(
            f"group_size 1 gives every advantage 0 under advantage {c.advantage!r}: use at least 2 completions a "
            "prompt, or advantage reinforce_pp."
        )
    if (c.critic == "none") == (c.advantage == "gae"):
        raise ConfigError(
            f"advantage {c.advantage!r} with critic {c.critic!r}: gae needs a critic, and no other advantage takes one."
        )
    if (c.reward == "model") == (c.reward_model is None):
        raise ConfigError(
            f"reward {c.reward!r} with reward_model {c.reward_model!r}: reward model needs a reward_model, and reward "
            "task takes none."
        )
    if c.kl_control == "adaptive" and c.beta == 0:
        raise ConfigError("kl_control adaptive multiplies beta, which is 0: set beta above 0.")
    if c.controller_scope == "prompt" and (c.probe_source != "probe" or c.probe_share < 1):
        raise ConfigError(
            "controller_scope prompt needs a probe of every prompt: set probe_share to 1.0, and probe_source to probe."
        )
    asked = c.system_prompt is not None or bool(c.template_values)
    if c.chat_template == "never" and asked:
        raise ConfigError(
            "system_prompt and template_arguments are for a chat template, and chat_template is never: leave them out, "
            "or set chat_template to auto."
        )
    require("" not in c.stop_tokens, "stop_tokens", "texts of tokens, none of them empty")
    if c.activation_checkpointing and c.shared_prompt:
        raise ConfigError(
            "shared_prompt needs the prompt's cache, which activation checkpointing drops: set shared_prompt to false."
        )
    if c.method == "dpo":
        _check_dpo(c)


def _check_dpo(c: TrainConfig) -> None:
    """Refuse settings that DPO would not read: it samples at tau_base and has a loss of its own."""
    if c.group_size == 1:
        raise ConfigError("dpo pairs completions of one prompt, and group_size is 1: use at least 2.")
    for name, unread in (("critic", "none"), ("clip", "fixed"), ("temperature", "fixed"), ("kl_control", "fixed")):
        if getattr(c, name) != unread:
            raise ConfigError(f"dpo does not read {name}: set it to {unread}.")
    if c.beta > 0:
        raise ConfigError("dpo does not read beta; the weight of its reference is dpo_beta: set beta to 0.0.")


def _check_sizes(c: TrainConfig, require) -> None:
    """Refuse runs that no machine can hold, or that would not end."""
    longest = HORIZONS[c.horizon_unit]
    require(c.horizon <= longest, "horizon", f"at most {longest:g} {c.horizon_unit}")
    for name in ("group_size", *(["probe_group_size"] if c.needs_probe and c.probe_group_size else [])):
        completions = c.prompts_per_update * getattr(c, name)
        beside = f"prompts_per_update ({c.prompts_per_update}) x {name}"
        require(completions <= COMPLETIONS, name, f"smaller: {beside} may be at most {COMPLETIONS} completions")
        require(
            completions * c.max_completion_tokens <= TOKENS,
            "max_completion_tokens",
            f"smaller: {beside} x max_completion_tokens may be at most {TOKENS} tokens per update",
        )

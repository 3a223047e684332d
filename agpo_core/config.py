"""Every setting of a run, in one flat and typed dataclass.

A run's configuration is data: it is built from keyword arguments or YAML, refuses unknown keys and mistyped values,
and is saved in the run's folder. Defaults are AGPO's §4.1 where the paper states a value; the number of gradient steps
per rollout batch, which it does not state, is the one under which the clip radius matters (4 minibatches x 2 epochs).
"""

import dataclasses
import difflib
import functools
import hashlib
import json
import math
import reprlib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path

# Bumped by hand when a change of code alters the numbers of a run: recorded runs are then no longer reused.
NUMERICS_VERSION = 2  # norms and biases are no longer decayed


class ConfigError(ValueError):
    """A setting is unknown, of the wrong type or out of range; the message names it and the remedy."""

    def _render_traceback_(self) -> list[str]:  # what a notebook shows of it: the message, and no frames
        return [f"ConfigError: {self}"]


def _one_of(*choices):
    return {"choices": choices}


def _later(default, *choices):
    """A setting added after runs were recorded: it enters a run's hash only where it is off its default."""
    return field(default=default, metadata={"later": True} | (_one_of(*choices) if choices else {}))


@dataclass(frozen=True)
class TrainConfig:
    """All settings of one training run; field comments give unit, range and source."""

    # -- what is trained, on what
    method: str = "grpo"  # a name in recipes.RECIPES
    seed: int = 42  # [0, 2**31); keys every random stream of the run
    model: str = "tiny-qwen2-a"  # an embedded model, a folder, or a hub id
    tasks: tuple[str, ...] = ()  # names known to tasks.get_task
    data_dir: str | None = None  # folder of a benchmark's official files; None: from the hub
    train_on_evaluation_sets: bool = _later(False)  # train on a part of benchmarks that are for evaluation only
    train_problems: int | None = _later(None)  # >= 1, a task: only so many, drawn by the seed; None: all (R++ Table 2)
    test_tasks: tuple[str, ...] = _later(())  # the test is made on these; empty: on tasks (R++ Fig. 4)
    decontaminate: tuple[str, ...] = _later(())  # evaluation sets whose copies are not trained on: cmath, cmath:dev
    lora_rank: int = 0  # >= 0; 0 trains all weights
    reference: str = field(
        default="auto", metadata=_one_of("auto", "frozen_copy", "adapter_disabled", "none")
    )  # where pi_ref comes from; auto: adapters off under LoRA, else a frozen copy

    # -- what the model reads, and what ends its turn (rollouts/prompts.py)
    chat_template: str = _later("auto", "auto", "always", "never")  # auto: where the tokenizer has one; never: as text
    system_prompt: str | None = _later(None)  # first message of every chat; None: the template's own, if it has one
    template_arguments: tuple[str, ...] = _later(())  # name=value, the value JSON: enable_thinking=false
    stop_tokens: tuple[str, ...] = _later(())  # texts of tokens that end a completion, beside the model's own

    # -- horizon: learning rate, evaluations and stop are functions of the consumed share of it
    horizon_unit: str = field(default="tokens", metadata=_one_of("tokens", "updates", "seconds"))
    horizon: float = 100_000.0  # >= 0, in horizon_unit; 0 evaluates the start and stops

    # -- sampling
    engine: str = _later("transformers", "transformers", "vllm")  # what samples completions
    engine_memory: float = _later(0.5)  # (0, 1), share of a GPU's memory that vLLM takes while it samples
    prompts_per_update: int = 36  # P, over all ranks
    group_size: int = 8  # G (paper: 8)
    probe_group_size: int | None = None  # G of the probe; None: group_size
    probe_share: float = _later(1.0)  # (0, 1], of an update's prompts that are probed, rounded up
    probe_source: str = _later("probe", "probe", "previous_update")  # whose rollouts the controllers see
    tau_base: float = 1.0  # > 0 (paper: 1.0)
    top_p: float = 0.95  # (0, 1] nucleus (paper: .95)
    max_completion_tokens: int = 24  # >= 1
    max_sequence_tokens: int = 1024  # prompt + continuation (paper: 1024)
    max_turns: int = _later(4)  # >= 1, turns of a completion whose task has a tool; a call in the last is not answered
    max_observation_characters: int = _later(512)  # >= 1, of a tool's output; the rest is cut off
    rollout_batch: int = 512  # sequences decoded at once; changes memory, never a sample

    # -- rewards and advantages
    reward: str = _later("task", "task", "model")  # what is maximised: the task's grade, or the score of reward_model
    reward_model: str | None = _later(None)  # a folder in the model's own, a folder or a hub id; None: the task's grade
    failed_grading: str = _later("zero", "zero", "raise")  # a completion that makes its grader fail: 0, or the run ends
    reward_clip: float | None = _later(None)  # > 0: rewards are bounded to ±reward_clip (R++ App. B.2); None: not
    reward_scale: float = _later(1.0)  # > 0: then multiplied by it (R++ App. B.2)
    advantage: str = _later(  # advantages.py has a function for each
        "group",
        "group", "dr_grpo", "leave_one_out", "greedy_baseline", "reinforce_pp", "reinforce_pp_baseline", "mixed", "gae",
    )  # fmt: skip
    credit: str = _later("return_to_go", "return_to_go", "last_token")  # of reinforce_pp
    population: str = _later("tokens", "tokens", "sequences")  # what reinforce_pp and its baseline form normalise over
    convention: str = _later("paper", "paper", "openrlhf", "verl")  # of global normalisation
    critic: str = _later("none", "none", "head", "model")  # of gae: a head on the policy, or a model as large as it
    gae_lambda: float = _later(0.95)  # [0, 1]
    gae_gamma: float = _later(1.0)  # [0, 1]
    value_clip: float = _later(0.2)  # > 0, units of return
    value_weight: float = _later(0.1)  # >= 0, of the value loss beside the policy's
    critic_learning_rate: float | None = _later(None)  # > 0, peak; None: learning_rate

    # -- objective
    dispersion: str = field(default="std", metadata=_one_of("std", "mad", "iqr"))  # Eqs. 1, 4, 9
    dispersion_fallback: str = field(default="std", metadata=_one_of("std", "zero", "error"))
    equal_groups: str = field(default="keep", metadata=_one_of("keep", "drop", "resample"))
    ratio: str = field(default="token", metadata=_one_of("token", "sequence", "sequence_geo"))
    ratio_temperature: str = field(default="rollout", metadata=_one_of("rollout", "model"))
    aggregation: str = field(default="sequence_mean", metadata=_one_of("sequence_mean", "token_mean", "constant"))
    beta: float = 0.03  # >= 0, weight of the KL to the reference (paper: .03)
    kl_estimator: str = field(default="k3", metadata=_one_of("k1", "k2", "k3"))
    kl_placement: str = field(default="loss", metadata=_one_of("loss", "reward"))
    kl_control: str = _later("fixed", "fixed", "adaptive")  # adaptive: beta follows kl_target (Ziegler et al. 2019)
    kl_target: float = _later(6.0)  # > 0, nats per sequence
    kl_horizon: float = _later(10_000.0)  # > 0, sequences

    # -- clip radius (Eq. 4)
    clip: str = field(default="fixed", metadata=_one_of("fixed", "adaptive"))
    epsilon_base: float = 0.2  # > 0 (paper: .2)
    epsilon_min: float = 0.05  # > 0 (paper: .05)
    epsilon_max: float = 0.4  # >= epsilon_min (paper: .4)
    alpha: float = 1.0  # >= 0, weight of the dispersion (paper: 1.0)
    gamma: float = 0.5  # >= 0, weight of the step KL (paper: .5)
    delta: float = 0.2  # >= 0, weight of the vote entropy (paper: .2)
    zeta: float = 0.05  # >= 0, weight of the skewness (paper: .05)
    clip_entropy: str = field(default="raw", metadata=_one_of("raw", "ratio_ema", "normalised", "off"))
    step_kl: str = field(default="clamp", metadata=_one_of("clamp", "unclamped", "ema"))
    step_kl_estimator: str = field(default="k1", metadata=_one_of("k1", "k3"))

    # -- sampling temperature (Eqs. 9-12)
    temperature: str = field(default="fixed", metadata=_one_of("fixed", "adaptive"))
    tau_min: float = 0.5  # > 0 (paper: .5)
    tau_max: float = 1.5  # >= tau_min (paper: 1.5)
    sensitivity: float = 0.15  # lambda >= 0 (paper: .15)
    momentum: float = 0.95  # rho_U in [0, 1) (paper: .95)
    weights: tuple[float, ...] = (1.0, 1.0, 0.1)  # w_r, w_e, w_k >= 0 (paper: 1, 1, .1)
    baseline_start: str = field(default="zero", metadata=_one_of("zero", "first", "debiased"))
    centring: str = field(default="absolute", metadata=_one_of("absolute", "relative"))

    # -- statistics of both controllers
    signals_mask: tuple[int, ...] = (1, 1, 1, 1)  # sigma, skewness, vote entropy, step KL[, H]
    skewness: str = field(default="g1", metadata=_one_of("g1", "G1", "b1"))
    skewness_guard: str = field(default="std", metadata=_one_of("std", "mode"))
    sigma_min: float = 1.0e-6  # > 0 (paper: 1e-6)
    kappa_max: float = 10.0  # > 0 (paper: 10)
    missing_answers: str = field(default="shared", metadata=_one_of("shared", "drop", "unique"))
    controller_scope: str = field(default="update", metadata=_one_of("update", "prompt"))

    # -- optimisation
    learning_rate: float = 1.5e-5  # > 0, peak (paper: 1.5e-5)
    warmup: float = 0.05  # [0, 1), share of the horizon over which the rate rises linearly
    adam_betas: tuple[float, ...] = (0.9, 0.95)  # (paper: .9, .95)
    weight_decay: float = 0.1  # >= 0 (paper: .1); not of norms and biases
    max_grad_norm: float = 1.0  # > 0 (paper: 1.0)
    minibatches: int = 4  # gradient steps per epoch over a rollout batch
    epochs: int = 2  # passes over a rollout batch
    micro_batch_prompts: int | None = None  # prompts of any forward on a rank; None: the minibatch
    dtype: str = field(default="float32", metadata=_one_of("float32", "bfloat16"))
    attn_implementation: str = _later("auto", "auto", "eager", "sdpa", "flash_attention_2")  # auto: as the model needs
    activation_checkpointing: bool = False
    shared_prompt: bool = True  # compute a group's prompt once in the training forward

    dpo_beta: float = _later(0.1)  # > 0, of DPO's loss

    # -- evaluation and checkpoints
    eval_every: float = 0.25  # (0, 1], share of the horizon between evaluations on dev
    dev_problems: int | None = 100  # per task; 0: no evaluation on dev; None: all that the split has
    test_problems: int | None = 400  # per task, once at the end; 0: none; None: all
    test_samples: int = _later(0)  # >= 0, completions a problem at the end, at tau_base, beside the greedy one
    checkpoint_every: float = 0.25  # (0, 1], share of the horizon between checkpoints

    def __post_init__(self):
        for f in dataclasses.fields(self):
            object.__setattr__(self, f.name, _checked(f, getattr(self, f.name)))
        _check_ranges(self)

    @property
    def template_values(self) -> dict:
        """What `template_arguments` say, as {name: value}.

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
                    f"template_arguments must be texts name=value, each name once and the value JSON, such as "
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
        """Whether a controller of clip radius or temperature listens to reward statistics."""
        return "adaptive" in (self.clip, self.temperature)

    @property
    def needs_probe(self) -> bool:
        """A probe is sampled only where a controller listens to it."""
        return self.adapts and self.probe_source == "probe"

    def to_dict(self) -> dict:
        """Plain Python values, in the order of the fields; tuples become lists."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in dataclasses.asdict(self).items()
        }

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
        """Ten hex digits over all settings and the numerics version: the identity of a run's result.

        A setting that was added after runs were recorded counts only off its default: at it, those runs are the same.
        """
        settings = self.to_dict()
        for f in dataclasses.fields(self):
            if f.metadata.get("later") and getattr(self, f.name) == f.default:
                del settings[f.name]
        text = json.dumps([NUMERICS_VERSION, settings], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]


FIELDS = {f.name: f for f in dataclasses.fields(TrainConfig)}

# The most that a number may be. Beyond it a run would not fit into any machine, would not end, or would leave what
# float32 can hold; no run that makes sense comes near.
HIGHEST = {
    "lora_rank": 4096,
    "train_problems": 10_000_000,
    "dev_problems": 10_000_000,
    "test_problems": 10_000_000,
    "test_samples": 65_536,
    "prompts_per_update": 65_536,
    "micro_batch_prompts": 65_536,
    "group_size": 65_536,
    "probe_group_size": 65_536,
    "rollout_batch": 1_048_576,
    "max_completion_tokens": 1_048_576,
    "max_sequence_tokens": 16_777_216,
    "max_turns": 1000,
    "max_observation_characters": 1_048_576,
    "epochs": 1000,
    "tau_base": 100.0,
    "tau_min": 100.0,
    "tau_max": 100.0,
    "learning_rate": 10.0,
    "critic_learning_rate": 10.0,
    "weight_decay": 100.0,
    "beta": 1000.0,
    "dpo_beta": 1000.0,
    "kl_horizon": 1.0e24,
}
HIGHEST_OF_OTHERS = 1.0e12  # of every other number
LOWEST_RATE = 1.0e-12  # of a learning rate: a smaller one moves no float32 weight
LOWEST_TEMPERATURE = 1.0e-6
LEAST = 1.0e-30  # in size, of every other number that is not 0: float32 ends at 1e-38, and products come sooner
HORIZONS = {"tokens": 1.0e13, "updates": 1.0e8, "seconds": 1.0e9}  # the longest, by unit: years on a cluster
COMPLETIONS = 2**20  # of an update, the most
TOKENS = 2**32  # of an update, the most: completions x max_completion_tokens
ENTRIES = 1000  # of a list, the most

AS_WRITTEN = ("system_prompt", "stop_tokens")  # texts for the model, which may hold line breaks
_SHORT = reprlib.Repr()  # a value in a message: of a huge or deeply nested one the beginning
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


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
        settings = yaml.load(text, Loader=_loader())
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
            raise ConfigError(f"{name}: the key {_SHORT.repr(key)} is not text: keys are names of settings.")
    return settings


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
            close = difflib.get_close_matches(str(key)[:80], FIELDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "see agpo_core.config.TrainConfig."
            raise ConfigError(f"unknown setting {_SHORT.repr(key)}: {hint}")


def _checked(f: dataclasses.Field, value):
    """Return the value as its field's type, or raise naming the field."""
    kind, optional = f.type, False
    if isinstance(kind, types.UnionType):
        kind, optional = next(a for a in typing.get_args(kind) if a is not type(None)), True
    if value is None and optional:
        return None
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{f.name} must be a list of {item.__name__}, got {_SHORT.repr(value)}.")
        if len(value) > ENTRIES:
            raise ConfigError(f"{f.name} must have at most {ENTRIES} entries, got {len(value)}.")
        return tuple(_as(f.name, item, v) for v in value)
    value = _as(f.name, kind, value)
    choices = f.metadata.get("choices")
    if choices and value not in choices:
        raise ConfigError(f"{f.name} must be one of {', '.join(choices)}; got {_SHORT.repr(value)}.")
    return value


def _as(name: str, kind: type, value):
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**1000 else math.inf
    if kind is float and isinstance(value, str):
        raise ConfigError(
            f"{name} must be a number, got the text {_SHORT.repr(value)}: in YAML a float needs a dot, write 1.0e-6 "
            "and not 1e-6."
        )
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise ConfigError(f"{name} must be {kind.__name__}, got {_SHORT.repr(value)}.")
    if kind is float and not math.isfinite(value):
        raise ConfigError(f"{name} must be finite, got {_SHORT.repr(value)}.")
    if kind is str and any("\ud800" <= character <= "\udfff" for character in value):
        raise ConfigError(f"{name} must be a text without halves of characters, got {ascii(value[:80])}.")
    if kind is str and name not in AS_WRITTEN and not (value.isprintable() and value.strip()):
        raise ConfigError(f"{name} must be a text of printable characters, got {_SHORT.repr(value)}.")
    return value


def _check_ranges(c: TrainConfig) -> None:
    def require(ok: bool, name: str, rule: str) -> None:
        if not ok:
            raise ConfigError(f"{name} must be {rule}; got {_SHORT.repr(getattr(c, name))}.")

    for name in ("group_size", "prompts_per_update", "max_completion_tokens", "max_sequence_tokens", "max_turns",
                 "max_observation_characters", "rollout_batch", "minibatches", "epochs"):  # fmt: skip
        require(getattr(c, name) >= 1, name, "at least 1")
    for name in ("probe_group_size", "micro_batch_prompts", "train_problems"):
        require(getattr(c, name) is None or getattr(c, name) >= 1, name, "at least 1, or null")
    for name in ("horizon", "beta", "alpha", "gamma", "delta", "zeta", "sensitivity", "lora_rank",
                 "weight_decay", "value_weight", "test_samples"):  # fmt: skip
        require(getattr(c, name) >= 0, name, "0 or more")
    for name in ("dev_problems", "test_problems"):
        require(getattr(c, name) is None or getattr(c, name) >= 0, name, "0 or more, or null for all")
    for name in ("tau_base", "epsilon_base", "epsilon_min", "tau_min", "learning_rate", "sigma_min",
                 "kappa_max", "max_grad_norm", "reward_scale", "value_clip", "kl_target", "kl_horizon",
                 "dpo_beta"):  # fmt: skip
        require(getattr(c, name) > 0, name, "above 0")
    for name in ("top_p", "probe_share", "eval_every", "checkpoint_every"):
        require(0 < getattr(c, name) <= 1, name, "in (0, 1]")
    for name in ("reward_clip", "critic_learning_rate"):
        require(getattr(c, name) is None or getattr(c, name) > 0, name, "above 0, or null")
    for name in ("gae_lambda", "gae_gamma"):
        require(0 <= getattr(c, name) <= 1, name, "in [0, 1]")
    for name in ("warmup", "momentum"):
        require(0 <= getattr(c, name) < 1, name, "in [0, 1)")
    require(0 < c.engine_memory < 1, "engine_memory", "in (0, 1)")
    require(0 <= c.seed < 2**31, "seed", "in [0, 2**31)")
    require(c.epsilon_max >= c.epsilon_min, "epsilon_max", "at least epsilon_min")
    require(c.tau_max >= c.tau_min, "tau_max", "at least tau_min")
    require(len(c.weights) == 3, "weights", "three numbers: w_r, w_e, w_k")
    require(all(w >= 0 for w in c.weights), "weights", "0 or more, each")
    require(len(c.signals_mask) in (4, 5), "signals_mask", "4 bits, or 5 with H")
    require(all(bit in (0, 1) for bit in c.signals_mask), "signals_mask", "bits, 0 or 1")
    require(len(c.adam_betas) == 2, "adam_betas", "two numbers")
    require(all(0 <= b < 1 for b in c.adam_betas), "adam_betas", "in [0, 1), each")
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
            f"kl_placement reward takes kl_estimator k1 alone, got {c.kl_estimator}: use k1, or kl_placement loss."
        )
    grouped = ("group", "dr_grpo", "leave_one_out", "reinforce_pp_baseline", "mixed")
    if c.group_size == 1 and c.advantage in grouped:
        raise ConfigError(
            f"group_size 1 gives every advantage 0 under advantage {c.advantage!r}: use at least 2 completions a "
            "prompt, or advantage reinforce_pp."
        )
    if (c.critic == "none") == (c.advantage == "gae"):
        raise ConfigError(f"advantage {c.advantage!r} with critic {c.critic!r}: gae needs a critic, and nothing else.")
    if (c.reward == "model") == (c.reward_model is None):
        raise ConfigError(
            f"reward {c.reward!r} with reward_model {c.reward_model!r}: reward model needs a reward_model, and nothing "
            "else takes one."
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
    """DPO samples at tau_base and has a loss of its own: what asks for more than that is refused."""
    if c.group_size == 1:
        raise ConfigError("dpo pairs completions of one prompt, and group_size is 1: use at least 2.")
    for name, unread in (("critic", "none"), ("clip", "fixed"), ("temperature", "fixed"), ("kl_control", "fixed")):
        if getattr(c, name) != unread:
            raise ConfigError(f"dpo does not read {name}: set it to {unread}.")
    if c.beta > 0:
        raise ConfigError("dpo does not read beta, the weight of its reference is dpo_beta: set beta to 0.0.")


def _check_sizes(c: TrainConfig, require) -> None:
    """Refuse what no machine holds, what does not end, and what float32 cannot tell from 0 or infinity."""
    for f in dataclasses.fields(c):
        value = getattr(c, f.name)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, (int, float)):
                highest = HIGHEST.get(f.name, HIGHEST_OF_OTHERS)
                if f.name != "horizon":
                    require(number <= highest, f.name, f"at most {highest:g}")
                require(number == 0 or abs(number) >= LEAST, f.name, f"0, or at least {LEAST:g}")
    longest = HORIZONS[c.horizon_unit]
    require(c.horizon <= longest, "horizon", f"at most {longest:g} {c.horizon_unit}")
    for name in ("learning_rate", "critic_learning_rate"):
        rate = getattr(c, name)
        require(rate is None or rate >= LOWEST_RATE, name, f"at least {LOWEST_RATE:g}")
    for name in ("tau_base", "tau_min"):
        require(getattr(c, name) >= LOWEST_TEMPERATURE, name, f"at least {LOWEST_TEMPERATURE:g}")
    for name in ("epsilon_base", "epsilon_min", "epsilon_max"):
        require(getattr(c, name) < 1, name, "below 1: 1 - epsilon bounds a ratio, which is positive")
    for name in ("group_size", *(["probe_group_size"] if c.needs_probe and c.probe_group_size else [])):
        completions = c.prompts_per_update * getattr(c, name)
        beside = f"prompts_per_update ({c.prompts_per_update}) x {name}"
        require(completions <= COMPLETIONS, name, f"smaller: {beside} may be {COMPLETIONS} completions")
        require(
            completions * c.max_completion_tokens <= TOKENS,
            "max_completion_tokens",
            f"smaller: {beside} x max_completion_tokens may be {TOKENS} tokens an update",
        )

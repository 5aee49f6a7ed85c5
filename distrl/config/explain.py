"""Errors of a configuration in one line: the path, the value, its origin, the allowed values."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError

from distrl.config.algorithms import ALGORITHMS, Declared
from distrl.config.document import shown
from distrl.config.presets import nearest
from distrl.config.run import RunConfig
from distrl.config.schedules import ConstantSchedule
from distrl.errors import one_line

Path = tuple[str, ...]

_DISCRIMINATORS = ("kind", "step")
"""Fields that select the member of a union; `algorithm` is selected by its name."""

ALIASES = {
    "algo": "algorithm.name",
    "batch_norm": "network.middleware_parameters.batchnorm",
    "buffer_size": "algorithm.replay.capacity_steps",
    "clip_param": "algorithm.clip_range",
    "ent_coef": "algorithm.entropy_weight",
    "entropy_coef": "algorithm.entropy_weight",
    "entropy_coeff": "algorithm.entropy_weight",
    "entropy_cost": "algorithm.entropy_weight",
    "env": "environment.id",
    "env_id": "environment.id",
    "frames": "stop.env_steps",
    "gamma": "algorithm.discount",
    "grad_clip": "network.clip_gradients",
    "hidden_sizes": "network.middleware_parameters.scheme",
    "learning_starts": "algorithm.replay.min_size_steps",
    "lr": "network.learning_rate",
    "max_episodes": "stop.episodes",
    "max_grad_norm": "network.clip_gradients",
    "n_envs": "actors.environments",
    "n_epochs": "algorithm.epochs",
    "n_minibatches": "algorithm.minibatches",
    "n_steps": "actors.unroll_length_steps",
    "n_workers": "actors.count",
    "net_arch": "network.middleware_parameters.scheme",
    "num_actors": "actors.count",
    "num_envs": "actors.environments",
    "num_epochs": "algorithm.epochs",
    "num_minibatches": "algorithm.minibatches",
    "num_steps": "actors.unroll_length_steps",
    "num_workers": "actors.count",
    "optimizer": "network.optimizer_type",
    "polyak": "algorithm.target_update_rate",
    "replay_size": "algorithm.replay.capacity_steps",
    "rollout_length": "actors.unroll_length_steps",
    "target_kl": "algorithm.stop_at_kl",
    "tau": "algorithm.target_update_rate",
    "timesteps": "stop.env_steps",
    "total_timesteps": "stop.env_steps",
    "train_batch_size": "learner.batch_size",
    "unroll_length": "actors.unroll_length_steps",
    "value_coef": "algorithm.value_loss_weight",
    "vf_coef": "algorithm.value_loss_weight",
    "wall_time_s": "stop.minutes",
    "weight_decay_rate": "network.weight_decay",
}
"""Other libraries' names of settings -> distrl's."""


def explain(error: ValidationError, origin_of: Mapping[str, str], root: type[BaseModel] = RunConfig) -> str:
    """Describe the first problem of an invalid configuration in one line, and count the others.

    Args:
        origin_of: Dotted path -> origin, of the values that were given.
        root: The model that refused it.
    """
    problems = error.errors(include_url=False)
    # An unknown key is usually the cause of the other problems.
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    text = _explain(problems[0], origin_of, root)
    more = len(problems) - 1
    return text if more == 0 else f"{text} (and {more} more {'problem' if more == 1 else 'problems'})"


def known_paths(section: type[BaseModel], prefix: Path = ()) -> list[str]:
    """Return every dotted path that a configuration can set, sections included."""
    paths: dict[str, None] = {}  # an ordered set: kinds of one section share keys
    for name, field in section.model_fields.items():
        path = (*prefix, name)
        paths[".".join(path)] = None
        for member in _members(field.annotation):
            inner = _bare(member)
            if _section_of(inner) is not None and inner is not Declared:  # distrl fills it in
                paths |= dict.fromkeys(known_paths(inner, path))
    return [*paths]


def _explain(problem: Any, origin_of: Mapping[str, str], root: type[BaseModel]) -> str:
    location = tuple(str(part) for part in problem["loc"])
    path, annotation = _written(root, location)
    dotted = ".".join(path)
    if problem["type"] == "extra_forbidden":
        _, parent = _written(root, location[:-1])
        _, around = _written(root, location[:-2])  # all kinds, where `parent` is one of several
        whole = root if issubclass(root, RunConfig) else RunConfig
        hint = _other_kinds(path[-1], around) or _nearest_key(path, parent, whole)
        return f"unknown key {dotted}{_from(path, origin_of)}; {hint}"
    if problem["type"] == "value_error":  # a validator of ours, whose message names the values
        text = one_line(problem["ctx"]["error"])
        return f"{dotted}: {text}" if dotted else text
    if problem["type"] == "missing":
        return f"{dotted} is missing{_from(path[:-1], origin_of)}"
    value = f"{dotted}: {shown(problem['input'])}{_from(path, origin_of)}"
    if path == ("algorithm",) and problem["type"] == "union_tag_invalid":
        name = problem["input"]["name"]
        known = nearest(str(name), [*ALGORITHMS])
        given = f"{name!r}{_from((*path, 'name'), origin_of)}"
        return f"unknown algorithm {given}; {known}; one of your own is package.module:Class"
    no_mapping = problem["type"] in ("model_type", "model_attributes_type", "dict_type")
    no_kind = problem["type"] in ("union_tag_invalid", "union_tag_not_found")
    is_one_of_several = no_kind or (no_mapping and _is_union(annotation))
    may_be_kind = not _takes_number(annotation) or problem["input"] in map(_tag, _members(annotation))
    if isinstance(problem["input"], str) and is_one_of_several and may_be_kind:
        field = "name" if path == ("algorithm",) else _discriminators(annotation)
        return f"{value} must be a mapping; write {dotted}.{field}={problem['input']}"
    if is_one_of_several:
        return f"{value} {_allowed_kind(problem, annotation)}"
    if no_mapping:
        section = _section_of(annotation)
        keys = f" of {', '.join(section.model_fields)}" if section is not None else ""
        return f"{value} must be a mapping{keys}"
    return f"{value} {_allowed(problem)}"


def _written(annotation: Any, location: Path) -> tuple[Path, Any]:
    """Return the part of a location that the user wrote, and the type expected there; None if there is none.

    Pydantic's locations also name the member of a union that it tried, like `layers` and `dense` in
    network.middleware_parameters.scheme.layers.0.dense.units.
    """
    members = [member for member in _members(annotation) if member is not type(None)]
    if not location:
        return (), _bare(members[0]) if len(members) == 1 else annotation
    head, rest = location[0], location[1:]
    if len(members) > 1:
        tagged = next((member for member in members if _tag(member) == head), None)
        return ((), None) if tagged is None else _written(tagged, rest)
    bare = _bare(members[0])
    section = _section_of(bare)
    if section is not None:
        field = section.model_fields.get(head)
        inner = None if field is None else field.annotation
    elif get_origin(bare) is dict:
        inner, rest = get_args(bare)[1], tuple(part for part in rest if part != "[key]")
    else:
        inner = get_args(bare)[0] if get_origin(bare) in (tuple, list) else None
    if inner is None:
        return location, None
    path, found = _written(inner, rest)
    return (head, *path), found


def _members(annotation: Any) -> tuple[Any, ...]:
    """Return the alternatives of a union; another type is its own only one."""
    bare = _bare(annotation)
    if get_origin(bare) not in (Union, UnionType):
        return (annotation,)
    return tuple(inner for member in get_args(bare) for inner in ([member] if _tag(member) else _members(member)))


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _tag(member: Any) -> str | None:
    """Return Pydantic's name of this member of a union in locations."""
    if get_origin(member) is Annotated:
        tag = next((extra.tag for extra in member.__metadata__ if isinstance(extra, Tag)), None)
        if tag is not None:
            return tag
    bare = _bare(member)
    field = _discriminator(bare)
    return None if field is None else str(bare.model_fields[field].default)


def _is_union(annotation: Any) -> bool:
    """Whether an annotation is a choice among several kinds of a section."""
    return sum(_tag(member) is not None for member in _members(annotation)) > 1


def _discriminator(bare: Any) -> str | None:
    """Return the field that selects this section among the members of a union."""
    if not (isinstance(bare, type) and issubclass(bare, BaseModel)):
        return None
    return next((field for field in _DISCRIMINATORS if field in bare.model_fields), None)


def _section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the section that an annotation stands for, the first one of a union."""
    for member in _members(annotation):
        bare = _bare(member)
        if isinstance(bare, type) and issubclass(bare, BaseModel):
            return bare
    return None


def _takes_number(annotation: Any) -> bool:
    """Whether a number may stand in place of a section, as for layers and schedules."""
    members = _members(annotation)
    return "number" in map(_tag, members) or ConstantSchedule in map(_bare, members)


def _allowed_kind(problem: Any, annotation: Any) -> str:
    """List the allowed values of `kind` or `step`, and mention a bare number where it is allowed."""
    tags = [tag for tag in map(_tag, _members(annotation)) if tag is not None]
    kinds = [tag for tag in tags if tag != "number"]
    text = f"must have a {_discriminators(annotation)} of {', '.join(kinds)}"
    text += ", or be a number" if _takes_number(annotation) else ""
    close = get_close_matches(str(problem.get("ctx", {}).get("tag", "")).lower(), kinds, n=1)
    return f"{text}; did you mean {close[0]}?" if close else text


def _allowed(problem: Any) -> str:
    """Rephrase Pydantic's "Input should be …" as "must be …", and add the nearest choice."""
    message = one_line(problem["msg"])
    message = re.sub(r"^(Input|Tuple|List|String) should", "must", message).removesuffix(" after validation")
    message = message.replace("valid tuple", "list").replace("valid list", "list").replace(" after validation,", ",")
    if problem["type"] == "literal_error" and isinstance(problem["input"], str):
        choices = re.findall(r"'([^']+)'", message)
        close = get_close_matches(problem["input"].lower(), [choice.lower() for choice in choices], n=1)
        meant = next((choice for choice in choices if [choice.lower()] == close), None)
        message += f"; did you mean {meant}?" if meant else ""
    return message


def _from(path: Path, origin_of: Mapping[str, str]) -> str:
    """Return ' (from …)' with the origin of the path, of the nearest section above it, or of a value below it."""
    for end in range(len(path), 0, -1):
        origin = origin_of.get(".".join(path[:end]))
        if origin is not None:
            return f" (from {origin})"
    below = ".".join(path) + "."
    origin = next((origin for given, origin in origin_of.items() if given.startswith(below)), None)
    return f" (from {origin})" if origin is not None else ""


def _other_kinds(key: str, around: Any) -> str | None:
    """Return which other kinds of a section have the key."""
    kinds = [_tag(member) for member in _members(around) if key in getattr(_bare(member), "model_fields", {})]
    if not kinds or len(_members(around)) < 2:
        return None
    return f"only {_discriminators(around)} {' or '.join(map(str, kinds))} has it"


def _discriminators(annotation: Any) -> str:
    """Return the field that selects a member of a union."""
    fields = (_discriminator(_bare(member)) for member in _members(annotation))
    return next((field for field in fields if field is not None), "kind")


def _nearest_key(path: Path, parent: Any, whole: type[RunConfig]) -> str:
    """Suggest the nearest key beside an unknown one, else a similar key of another section, else list all keys.

    Args:
        parent: The section in which the key was given.
        whole: The configuration whose other sections may have the key.
    """
    parents, key = path[:-1], path[-1]
    section = _section_of(parent)
    here = [*section.model_fields] if section is not None else []
    prefix = "".join(f"{part}." for part in parents)
    known_as = ALIASES.get(key.lower())
    if known_as is not None and known_as != prefix + key:
        return f"did you mean {known_as}?"
    beside = get_close_matches(key, here, n=1, cutoff=0.7)
    if beside:
        return f"did you mean {prefix}{beside[0]}?"
    # Here, another algorithm or kind may have such a key, which this one has not.
    paths = [dotted for dotted in known_paths(whole) if dotted.rpartition(".")[0] != prefix[:-1]]
    names = {dotted.rpartition(".")[2] for dotted in paths}
    elsewhere = get_close_matches(key, sorted(names), n=1, cutoff=0.7)
    if elsewhere:
        matches = [dotted for dotted in paths if dotted.rpartition(".")[2] == elsewhere[0]]
        matches.sort(key=lambda dotted: dotted.count("."))  # a section's own key before those of its parts
        return f"did you mean {' or '.join(matches[:3])}?"
    return f"valid keys in {prefix[:-1]}: {', '.join(here)}" if parents else f"valid keys: {', '.join(here)}"

"""Strict schemas of all objects in the chart: unknown fields, wrong types and rules in CEL are refused.

Kubernetes' own come from kubernetes-validate, KubeRay's from its CRDs, those of KEDA and of Prometheus' operator from
the classes that other wheels have made of their CRDs; their source is parsed, not run.
"""

import ast
import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import celpy
import yaml
from celpy import adapter
from jsonschema import Draft202012Validator
from kubernetes_validate.utils import all_versions, schema_contents
from referencing import Registry, Resource

from tests.helm.rendering import Object, UnavailableError, name_of, wheel

CRDS_VARIABLE = "KUBERAY_CRDS"
"""Names the folder with KubeRay's CRDs: ray-operator/config/crd/bases of its repository, which no registry has."""
VERSIONS = [v for v in sorted({*map(str, all_versions())}) if tuple(map(int, v.split(".")[:2])) >= (1, 30)]
MODELS = {
    "keda.sh/v1alpha1": ("cloudcoil_models_keda", "cloudcoil/models/keda/v1alpha1.py"),
    "monitoring.coreos.com/v1": ("cloudcoil_models_prometheus_operator", "cloudcoil/models/prometheus_operator/v1.py"),
}
"""API version -> wheel and its file with a class for each object."""
SIMPLE: Mapping[str, Any] = {
    "int": {"type": "integer"},
    "str": {"type": "string"},
    "bool": {"type": "boolean"},
    "float": {"type": "number"},
    "None": {"type": "null"},
    "ObjectMeta": {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: {} for name in ("name", "labels", "annotations")},
    },
}


def schema_problems(found: Object, version: str) -> list[str]:
    """Return what a schema refuses in an object, for a version of Kubernetes."""
    if missing := {"apiVersion", "kind", "metadata"} - found.keys():
        return [f"an object without {sorted(missing)}"]
    if not found["metadata"].get("name"):
        return [f"{found['kind']} without a name"]
    group = found["apiVersion"]
    if group == "ray.io/v1":
        validator = _ray_job()
        problems = [*_broken_rules(ray_job_schema(), found, "")]
    elif group in MODELS:
        validator, problems = _model(group, found["kind"]), []
    else:
        validator, problems = _kubernetes(version, group, found["kind"]), []
    for error in validator.iter_errors(found):
        problems.append(f"{name_of(found)}: {error.json_path}: {error.message[:200]}")
    return problems


@functools.cache
def _kubernetes(version: str, group: str, kind: str) -> Draft202012Validator:
    folder = f"kubernetes-json-schema/v{version}-local-strict"
    api = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", group)
    schema = schema_contents(f"{folder}/{kind.lower()}-{api}.json", version)
    return Draft202012Validator(schema, registry=Resource.from_contents(schema) @ _definitions(folder, version))


@functools.cache
def _definitions(folder: str, version: str) -> Registry[Any]:
    return Resource.from_contents(schema_contents(f"{folder}/_definitions.json", version)) @ Registry()


@functools.cache
def ray_job_schema() -> Any:
    """Return the schema of a RayJob as its CRD has it.

    Raises:
        UnavailableError: The CRD is not there.
    """
    path = Path(os.environ.get(CRDS_VARIABLE, "")) / "ray.io_rayjobs.yaml"
    if not path.exists():
        raise UnavailableError(f"{CRDS_VARIABLE} must name the folder of KubeRay's repository with {path.name}")
    definition = yaml.load(path.read_text(), yaml.CSafeLoader)
    (version,) = (version for version in definition["spec"]["versions"] if version["name"] == "v1")
    return version["schema"]["openAPIV3Schema"]


@functools.cache
def _ray_job() -> Draft202012Validator:
    schema = _strict(ray_job_schema())
    schema["properties"]["metadata"] = SIMPLE["ObjectMeta"]
    return Draft202012Validator(schema)


def _strict(schema: Any) -> Any:
    """Return a schema of a CRD that refuses unknown fields, as the API server's strict field validation does."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _strict(value) for key, value in schema.items() if key != "properties"}
    if "properties" in schema:
        made["properties"] = {name: _strict(value) for name, value in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made.setdefault("additionalProperties", False)
    return made


def _broken_rules(schema: Any, value: Any, path: str) -> Iterator[str]:
    """Yield the rules in CEL that a value breaks; those that compare it with an earlier one are left out."""
    for rule in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" not in rule["rule"] and not _holds(rule["rule"], value):
            yield f"{path}: {rule['message']}"
    if isinstance(value, dict):
        for name, each in value.items():
            if name in schema.get("properties", {}):
                yield from _broken_rules(schema["properties"][name], each, f"{path}.{name}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _broken_rules(schema.get("items", {}), each, f"{path}[{number}]")


def _holds(rule: str, value: Any) -> bool:
    return bool(_program(rule).evaluate({"self": adapter.json_to_cel(value)}))


@functools.cache
def _program(rule: str) -> Any:
    environment = celpy.Environment()
    return environment.program(environment.compile(rule))


@functools.cache
def _model(group: str, kind: str) -> Draft202012Validator:
    source = _source(group)
    classes: dict[str, Any] = {}
    for match in re.finditer(rf"^class ({kind}\w*)\(.*?(?=^class |\Z)", source, re.MULTILINE | re.DOTALL):
        (found,) = ast.parse(match[0]).body
        assert isinstance(found, ast.ClassDef)
        classes[found.name] = _class_schema(found)
    return Draft202012Validator({"$ref": f"#/$defs/{kind}", "$defs": classes})


@functools.cache
def _source(group: str) -> str:
    name, path = MODELS[group]
    with wheel(name) as opened:
        return opened.read(path).decode()


def _class_schema(found: ast.ClassDef) -> Any:
    properties, required = {}, []
    for field in found.body:
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if ast.unparse(field.annotation).startswith("ClassVar"):
            continue
        name, schema = _field(field.target.id, field.annotation)
        properties[name] = schema
        if field.value is None:
            required.append(name)
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": required}


def _field(name: str, annotation: ast.expr) -> tuple[str, Any]:
    """Return the name in manifests, and the schema."""
    if isinstance(annotation, ast.BinOp):
        alias, left = _field(name, annotation.left)
        return alias, {"anyOf": [left, _type(annotation.right)]}
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        assert isinstance(annotation.slice, ast.Tuple)
        kind, *marks = annotation.slice.elts
        schema = _type(kind)
        for mark in marks:
            assert isinstance(mark, ast.Call)
            given = {word.arg: ast.literal_eval(word.value) for word in mark.keywords}
            name = given.get("alias", name)
            if "ge" in given:
                schema = {"allOf": [schema, {"minimum": given["ge"]}]}
        return name, schema
    return name, _type(annotation)


def _type(annotation: ast.expr) -> Any:
    text = ast.unparse(annotation)
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return {"$ref": f"#/$defs/{annotation.value}"}
    if text in SIMPLE:
        return SIMPLE[text]
    if isinstance(annotation, ast.BinOp):
        return {"anyOf": [_type(annotation.left), _type(annotation.right)]}
    if isinstance(annotation, ast.Subscript):
        kind, inside = ast.unparse(annotation.value), annotation.slice
        parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
        if kind == "Literal":
            return {"enum": [ast.literal_eval(part) for part in parts]}
        if kind == "list":
            return {"type": "array", "items": _type(parts[0])}
        if kind == "dict":
            return {"type": "object", "additionalProperties": _type(parts[1])}
        if kind == "Annotated":
            return _field("", annotation)[1]
    if re.fullmatch(r"[A-Z]\w+", text):
        return {"$ref": f"#/$defs/{text}"}
    raise ValueError(f"a type that these tests do not know: {text}")

"""Words that all checks of the chart share: labels, components, selectors."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from tests.helm.rendering import Object

WORKLOADS = ("Pod", "Job", "Deployment", "StatefulSet", "RayJob")
INSTANCE, COMPONENT = "app.kubernetes.io/instance", "app.kubernetes.io/component"

UNITS = {"": Decimal(1), "m": Decimal("0.001")}
UNITS |= {unit: Decimal(1000) ** power for power, unit in enumerate("kMGT", 1)}
UNITS |= {f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGT", 1)}


def quantity(text: str | float) -> Decimal:
    """Return the number that Kubernetes reads in a quantity, such as 1.5Gi or 500m."""
    number = str(text).rstrip("mkMGTKi")
    return Decimal(number) * UNITS[str(text)[len(number) :]]


def component_of(metadata: Object) -> str:
    """Return the component of a Pod."""
    return str(metadata.get("labels", {}).get(COMPONENT))


def differing(where: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields that have other values than wanted."""
    for name, value in wanted.items():
        if found.get(name) != value:
            yield f"{where} has {name}: {found.get(name)} and not {value}"


def selects(selector: Any, metadata: Object) -> bool:
    """Return whether a selector of labels, which selects nothing where it is missing, selects a Pod."""
    if not selector:
        return False
    labels = metadata.get("labels") or {}
    if any(labels.get(name) != value for name, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(labels.get(each["key"]) in each.get("values", ()) for each in selector.get("matchExpressions") or ())


def vague(selector: Any) -> Iterator[str]:
    """Pods of a release are found by the release and their components; other ones may be there, too."""
    named = set((selector or {}).get("matchLabels") or {})
    named |= {each["key"] for each in (selector or {}).get("matchExpressions") or ()}
    if not {INSTANCE, COMPONENT} <= named:
        yield f"a selector by {sorted(named)} finds Pods of others"

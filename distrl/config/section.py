"""The base class of configuration sections: frozen, and an unknown key is an error."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen part of the configuration tree. Units are in the names; derived values are properties, never inputs."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    def is_changed(self, field: str) -> bool:
        """Whether a field has another value than its default."""
        default = type(self).model_fields[field].get_default(call_default_factory=True)
        return bool(getattr(self, field) != default)

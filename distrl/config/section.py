"""The base class of configuration sections: frozen, and an unknown key is an error."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen part of the configuration tree. Units are in the names; derived values are properties, never inputs."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

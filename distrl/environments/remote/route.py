"""The way to the environments behind one address: `environment.kwargs`, the token, and the side that dials."""

from dataclasses import dataclass

from pydantic import ValidationError

from distrl.config.environment import EnvironmentConfig
from distrl.config.remote_environment import RemoteParameters
from distrl.environments.remote.connection import Address, Listener, dial, hello, parse_address, read_token
from distrl.environments.remote.protocol import Channel
from distrl.errors import ConfigError


@dataclass(frozen=True)
class Route:
    """The way to the environments of one configuration; all of them in this process share it.

    Attributes:
        listener: Accepts them where they dial us; None where we dial them.
        token: Sent when we dial, if there is one.
    """

    address: Address
    parameters: RemoteParameters
    token: str | None
    listener: Listener | None

    @staticmethod
    def of(config: EnvironmentConfig) -> "Route":
        """Read `environment.kwargs`."""
        address = parse_address(config.id)
        try:
            parameters = RemoteParameters.model_validate(config.kwargs)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(["environment.kwargs", *map(str, first["loc"])])
            raise ConfigError(f"{where}: {first['msg']} (environment {config.id})") from error
        if config.atari is not None:
            raise ConfigError(
                f"environment {config.id}: environment.atari is not for remote environments; the game there says how "
                "it is played and shown, and environment.preprocessing works here"
            )
        _check_time(config, parameters, parameters.first_connection_s(dial=address.dial))
        token = read_token(parameters.token_file)
        listener = None
        if not address.dial:
            timeout_s, limit = parameters.message_timeout_s, parameters.max_message_bytes
            listener = Listener(address, token, message_timeout_s=timeout_s, max_bytes=limit)
        return Route(address, parameters, token, listener)

    @property
    def first_connection_s(self) -> float:
        """Longest time for the first connections of a process."""
        return self.parameters.first_connection_s(dial=self.address.dial)

    def connect(self, wait_s: float, reply_by: float) -> Channel:
        """Make one attempt, of `wait_s` seconds at most; a reply to our greeting must be there by `reply_by`."""
        if self.listener is not None:
            return self.listener.accept(wait_s)
        timeout_s, limit = self.parameters.message_timeout_s, self.parameters.max_message_bytes
        # TensorForce's servers know no hello: only servers with a token get it.
        greeting = None if self.token is None else hello(self.token)
        return dial(
            self.address, greeting, message_timeout_s=timeout_s, wait_s=wait_s, max_bytes=limit, reply_by=reply_by
        )


def _check_time(config: EnvironmentConfig, parameters: RemoteParameters, connect_s: float) -> None:
    """Refuse time-outs with which one call of a vector could look like a hang, whatever its number of environments."""
    message_s, give_up_s = parameters.message_timeout_s, parameters.give_up_s
    for what, value_s in (
        (f"2 * message_timeout_s ({message_s:g})", 2 * message_s),
        (f"connect_timeout_s ({connect_s:g}) + message_timeout_s ({message_s:g})", connect_s + message_s),
        (f"give_up_s ({give_up_s:g}) + message_timeout_s ({message_s:g})", give_up_s + message_s),
    ):
        if value_s >= config.step_timeout_s:
            raise ConfigError(
                f"environment.kwargs: {what} is {value_s:g} and must be less than environment.step_timeout_s "
                f"{config.step_timeout_s:g}, after which the whole actor counts as hung"
            )

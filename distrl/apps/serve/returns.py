"""Returns of episodes that clients have reported, by policy and version."""

from collections import OrderedDict

from distrl.apps.web.server_records import Moments

MOST_RETURN = 1e150
"""Greatest size of a return, whose square is finite."""
MOST_VERSIONS = 32
"""Most versions of a policy whose returns are kept; beyond, the one whose episodes ended longest ago is dropped."""


class Returns:
    """Returns of ended episodes. Used only on the event loop."""

    def __init__(self) -> None:
        self._policies: dict[str, Moments] = {}
        self._versions: dict[str, OrderedDict[int, Moments]] = {}

    def add(self, policy: str, version: int, episode_return: float) -> None:
        """Count an episode that has ended.

        Args:
            policy: Name of its track: "main" or "canary".
            version: Of the weights that acted at its end.
            episode_return: Sum of its rewards.

        Raises:
            ValueError: The return is not finite, or larger than `MOST_RETURN`.
        """
        if not abs(episode_return) <= MOST_RETURN:
            raise ValueError(f"the return of an episode is {episode_return}, not a number up to {MOST_RETURN:g}")
        one = Moments(1, episode_return)
        self._policies[policy] = self.of(policy).plus(one)
        versions = self._versions.setdefault(policy, OrderedDict())
        versions[version] = versions.get(version, Moments()).plus(one)
        versions.move_to_end(version)
        if len(versions) > MOST_VERSIONS:
            versions.popitem(last=False)

    def of(self, policy: str) -> Moments:
        """Return those of a policy, of all its versions since the server began."""
        return self._policies.get(policy, Moments())

    def versions_of(self, policy: str) -> dict[int, Moments]:
        """Return version -> its returns, of the versions that are kept."""
        return dict(self._versions.get(policy, {}))

"""Minari's data sets (https://minari.farama.org): folders with HDF5 or Arrow files, which many libraries read."""

import contextlib
import glob
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec

from distrl.data.episodes import DataError, Episode, Lengths, TakenError, Unchanged
from distrl.errors import ConfigError, DistrlError, MissingExtraError, one_line, require
from distrl.files import read_small
from distrl.memory_backend.private_directory import PREFIX, leave_private_directory, make_private_directory

ENVIRONMENT = "distrl_environment"
"""Entry of the metadata that distrl adds: the id of the environment as distrl takes it."""
_VERSION = re.compile(r"-v(\d+)")
_RECORDER = "recorder.json"
LOG_PROBABILITY = "behaviour_log_probability"
"""Entry of the infos that distrl adds: of the step's action."""
AT_ONCE = 16
"""Episodes for which the files are opened once: opening takes about a millisecond, and Arrow reads ahead."""
WRITTEN_BYTES = 2**23
"""Memory from which on episodes are written, together: opening the file takes milliseconds."""
HELD_BYTES = 4_096
"""Memory that an episode takes beside its arrays, and more: so 2,000 short ones are written together."""
EPISODE_BYTES = 32_768
"""Room that an episode takes in HDF5 beside its arrays, and more; measured with one observation and action: 4.5 KB."""


def folder() -> Path:
    """Return the folder of Minari's data sets."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets").expanduser()


def path_of(name: str) -> Path | None:
    """Return the folder of a data set, by its path or name, whose newest version is meant; None: there is none."""
    given = Path(name)
    for path in [given] if given.is_absolute() else [folder() / name, *_versions(name)]:
        for data in (path, path / "data"):
            if (data / "metadata.json").is_file():
                return data
    return None


def _versions(name: str) -> list[Path]:
    """Return the folders of all versions of a data set, the newest first."""
    beginning = Path(name).name
    found = (folder() / name).parent.glob(f"{glob.escape(beginning)}-v*")
    numbered = [(int(version[1]), path) for path in found if (version := _VERSION.fullmatch(path.name, len(beginning)))]
    return [path for _, path in sorted(numbered, reverse=True)]


class MinariEpisodes:
    """A data set of Minari.

    Args:
        path: The folder with `metadata.json`.

    Raises:
        DataError: It is damaged, or empty.
        MissingExtraError: The extra `data` is not installed.
    """

    def __init__(self, name: str, path: Path) -> None:
        require("minari", f"Minari, which reads {name},", "data")
        # Imported here: it is an extra.
        from minari.dataset.minari_storage import MinariStorage

        self.name = name
        try:
            metadata = json.loads(read_small(path / "metadata.json"))
            self._storage = MinariStorage.read(path)
            hdf5 = path / "main_data.hdf5"
            self._unchanged = Unchanged(name, hdf5 if hdf5.exists() else path / "metadata.json")
            self.observation_space: Space[Any] | None = self._storage.observation_space
            self.action_space: Space[Any] | None = self._storage.action_space
            count = int(metadata["total_episodes"])
            steps = self._storage.get_episode_metadata(range(count))
            self.lengths: Lengths = np.fromiter((entry["total_steps"] for entry in steps), np.int64, count)
        except MissingExtraError:
            raise
        except Exception as error:  # of HDF5, Arrow, JSON and gymnasium: a damaged file fails in every way
            raise DataError(f"data set {name}: {path} cannot be read: {one_line(error)}") from error
        self.environment = _environment(metadata)
        self.metadata: Mapping[str, Any] = metadata
        if not count:
            raise DataError(f"data set {name} has no episodes ({path})")

    def read(self, numbers: Sequence[int]) -> Iterator[Episode]:
        reading: Iterator[Any] = iter(())
        for place, number in enumerate(numbers):
            self._unchanged.check()
            try:
                if place % AT_ONCE == 0:
                    reading = iter(self._storage.get_episodes([*numbers[place : place + AT_ONCE]]))
                episode = _episode(next(reading))
            except Exception as error:
                raise DataError(f"data set {self.name}: episode {number} cannot be read: {one_line(error)}") from error
            yield episode


def _episode(found: Mapping[str, Any]) -> Episode:
    log_probabilities = (found.get("infos") or {}).get(LOG_PROBABILITY)
    rewards = np.asarray(found["rewards"], np.float64)
    return Episode(
        observations=found["observations"],
        actions=found["actions"],
        rewards=rewards,
        terminated=bool(found["terminations"][-1]),
        log_probabilities=None if log_probabilities is None else np.asarray(log_probabilities, np.float32),
    )


def recorded_environment(name: str) -> str | None:
    """Return the id of a data set's environment; None: it does not say.

    Raises:
        DataError: There is no such set, or it is damaged.
    """
    if (path := path_of(name)) is None:
        raise no_data_set(name)
    try:
        return _environment(json.loads(read_small(path / "metadata.json")))
    except (ValueError, OSError, DistrlError) as error:
        raise DataError(f"data set {name}: {path} cannot be read: {one_line(error)}") from error


def no_data_set(name: str) -> DataError:
    """Return the error about a name that no data set has."""
    return DataError(
        f"no data set {name}: neither a folder with Minari's metadata.json nor in {folder()}; `minari download` brings "
        "Minari's own, `distrl record` makes one"
    )


def _environment(metadata: Mapping[str, Any]) -> str | None:
    if (given := metadata.get(ENVIRONMENT)) is not None:
        return str(given)
    spec = metadata.get("env_spec")
    return None if spec is None else json.loads(spec).get("id")


class Recorder(NamedTuple):
    """A learner that records its training.

    The kernel says of a recording whether its process has ended, if that was on this host. On a disk that hosts share,
    it is a successor in the same run that knows.

    Attributes:
        launch: Token of the launch.
        number: Number of the learner in it; successors have higher ones.
    """

    run_id: str
    launch: str
    number: int

    def succeed(self, own: Path) -> None:
        """Claim a recording's private directory, and remove those beside it of predecessors in the run.

        Raises:
            OSError: The disk does not take the claim.
        """
        (own / _RECORDER).write_text(json.dumps(self))
        for claim in own.parent.glob(f"{PREFIX}*/{_RECORDER}"):
            if self._succeeds(claim):
                shutil.rmtree(claim.parent, ignore_errors=True)  # a stale host may hold files open

    def _succeeds(self, claim: Path) -> bool:
        try:
            run_id, launch, number = json.loads(read_small(claim, links=False))
            return bool(run_id == self.run_id and (launch != self.launch or number < self.number))
        except (OSError, ValueError, TypeError, ConfigError):  # removed just now, or not distrl's
            return False


class MinariWriter:
    """See `EpisodeWriter`: a data set of Minari.

    Args:
        name: The data set, in Minari's folder; a name with a slash, . or ~ at its beginning is a path. A name without a
            version, which Minari wants at its end, is of version 0.
        environment: Id of the environment.
        about: Further entries of the metadata: who acted, for example.
        recorder: The learner that records; what its predecessors have left is removed.

    Raises:
        TakenError: There is one of that name.
        DataError: Minari takes no such name, or the disk does not take it.
        MissingExtraError: The extra `data` is not installed.
    """

    def __init__(
        self,
        name: str,
        environment: str,
        observation_space: Space[Any],
        action_space: Space[Any],
        about: Mapping[str, Any],
        recorder: Recorder | None = None,
    ) -> None:
        require("minari", "Minari, which writes data sets,", "data")
        import minari
        from minari.dataset.minari_dataset import parse_dataset_id
        from minari.dataset.minari_storage import MinariStorage

        name = name if re.search(r"-v\d+$", name) else f"{name}-v0"
        is_path = name.startswith(("/", ".", "~"))
        self.path = Path(name) if is_path else folder() / name
        self.path = self.path.expanduser().absolute()  # which Minari needs
        dataset_id = self.path.name if is_path else name
        try:
            parse_dataset_id(dataset_id)
        except ValueError:
            raise DataError(
                f"a data set cannot be called {name}; Minari's names have letters, digits, _ and -, and / for folders"
            ) from None
        if self.path.exists():
            raise TakenError(f"there is a data set {name} already ({self.path}); choose another name, or remove it")
        self._name, self._is_whole = name, True
        self._ready: list[Episode] = []
        self._held_bytes = self._room_bytes = 0
        self._hidden = self.path.parent / ".new"  # Minari lists no folder whose name begins with a dot
        self._made = [folder for folder in self._hidden.parents if not folder.exists()]
        self._private: tuple[Path, int] | None = None
        self._new = self._hidden
        try:
            self._hidden.mkdir(parents=True, exist_ok=True)
            # Each recording has its own, also of one name: a learner may be recording still when its successor begins.
            self._private = make_private_directory(self._hidden)
            if recorder is not None:
                recorder.succeed(self._private[0])
            self._new = self._private[0] / self.path.name
            (self._new / "data").mkdir(parents=True)
            # Lossless: Minari's default stores images as JPEG.
            self._storage = MinariStorage.new(
                self._new / "data",
                observation_space,
                action_space,
                _registered(environment),
                data_format="hdf5",
                jpeg_encoding=False,
            )
            self._storage.update_episodes(())  # makes the file, which can be enlarged then
            self._storage.update_metadata(
                {"dataset_id": dataset_id, "minari_version": minari.__version__, ENVIRONMENT: environment, **about}
            )
        except OSError as error:
            self.abandon()
            raise self._refused(error) from error

    def add(self, episode: Episode) -> None:
        self._ready.append(episode)
        self._held_bytes += (size_bytes := _bytes_of(episode)) + HELD_BYTES
        self._room_bytes += size_bytes + EPISODE_BYTES
        if self._held_bytes >= WRITTEN_BYTES:
            self._write()

    def finish(self) -> Path:
        try:
            if self._ready:
                self._write()
            self._new.rename(self.path)
        except OSError as error:
            raise self._refused(error) from error
        finally:
            self.abandon()
        return self.path

    def _write(self) -> None:
        from distrl.data.hdf5_episodes import append  # here: h5py is an extra

        if not self._is_whole:
            raise DataError(f"data set {self._name}: its writing was interrupted; nothing is left of it")
        self._is_whole = False
        try:
            self._reserve(self._room_bytes)
            before = self._storage.total_episodes
            append(self._file, map(_buffer, self._ready), before)
            self._storage.update_metadata(
                {
                    "total_steps": self._storage.total_steps + sum(episode.length_steps for episode in self._ready),
                    "total_episodes": before + len(self._ready),
                    "dataset_size": self._storage.get_size(),
                }
            )
        except OSError as error:
            raise self._refused(error) from error
        self._ready.clear()
        self._held_bytes, self._room_bytes, self._is_whole = 0, 0, True

    def _reserve(self, more: int) -> None:
        """Make room for so many bytes, which HDF5 gives back: a write that fails there ends the process.

        Raises:
            OSError: The disk does not have them.
        """
        descriptor = os.open(self._file, os.O_RDWR)
        try:
            os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, more)
        finally:
            os.close(descriptor)

    @property
    def _file(self) -> Path:
        return self._new / "data" / "main_data.hdf5"

    def _refused(self, error: Exception) -> DataError:
        return DataError(f"data set {self._name} cannot be written: {one_line(error)} ({self._new})")

    def abandon(self) -> None:
        """Remove what has been written, and the folders that were made for it."""
        if self._private is not None:
            leave_private_directory(*self._private)
            self._private = None
        for folder in (self._hidden, *self._made):
            with contextlib.suppress(OSError):  # others use it
                folder.rmdir()


def _registered(environment: str) -> EnvSpec | None:
    """Return what gymnasium has registered under that id; None: nothing."""
    try:
        return gymnasium.spec(environment)
    except (gymnasium.error.Error, ImportError):
        return None


def _bytes_of(tree: Any) -> int:
    """Return the bytes of all arrays and texts."""
    if isinstance(tree, dict):
        return sum(map(_bytes_of, tree.values()))
    if isinstance(tree, tuple | list):
        return sum(map(_bytes_of, tree))
    return len(tree.encode()) if isinstance(tree, str) else np.asarray(tree).nbytes


def _buffer(episode: Episode) -> dict[str, Any]:
    last = np.zeros(episode.length_steps, np.bool_)
    last[-1] = True
    return {
        "observations": episode.observations,
        "actions": episode.actions,
        "rewards": episode.rewards,
        "terminations": last & episode.terminated,
        "truncations": last & (not episode.terminated),
        "infos": {} if episode.log_probabilities is None else {LOG_PROBABILITY: episode.log_probabilities},
    }

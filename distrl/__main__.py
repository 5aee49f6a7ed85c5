"""The entry of `distrl` and `python -m distrl`. It answers signals before it imports anything that takes time."""

import os
import sys

# `-m` puts the working directory first, where its modules would shadow the standard library; user_classes puts it last.
if __name__ == "__main__" and not sys.flags.safe_path and sys.path[0] == os.getcwd():
    del sys.path[0]

import signal
from types import FrameType

from distrl.errors import EXIT_INTERRUPTED, ConfigError
from distrl.health import quick_probe
from distrl.role_kinds import KINDS
from distrl.shadows import shadow


def main() -> int:
    """Run this process's command line and return the exit code.

    A signal that arrives while the command is being imported ends the process with 130: nothing has been launched. A
    role's supervisor expects that SIGTERM ends it as a signal: then it had nothing to save yet.
    """
    numbers = [signal.SIGINT] if sys.argv[1:2] and sys.argv[1] in KINDS else [signal.SIGINT, signal.SIGTERM]
    if len(numbers) > 1 and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # ignored after nohup
        numbers.append(signal.SIGHUP)
    for number in numbers:
        signal.signal(number, _leave)

    if sys.argv[1:2] == ["health"] and (code := quick_probe(sys.argv[2:])) is not None:
        return code

    try:
        from distrl.apps.commands import main as cli
    except Exception:
        if (text := shadow()) is None:
            raise
        print(f"distrl: error: {text}", file=sys.stderr)
        return ConfigError.exit_code

    return cli.main()


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())

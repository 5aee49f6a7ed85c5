import pytest

from distrl.config.schedules import Progress
from distrl.inference.messages import Answer, Hello, Kind, MessageError, Reply, Request


@pytest.mark.parametrize(
    "message",
    [
        Hello(bytes(range(32)), 2**32 - 1),
        Request(Kind.FOLLOW, 2**64 - 1, 3, 2, newest=True),
        Request(Kind.STEP, 1, 3, 3),
        Reply(Answer.DONE, 7, 3, Progress(2**40, 5, 6)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_is_read_as_it_was_written_and_nothing_else_is_read(message):
    kind, written = type(message), message.encode()
    assert kind.decode(written) == message
    for bad in (b"", written[:-1], written + b"\0", b"\xff" + written[1:]):
        with pytest.raises(MessageError):
            kind.decode(bad)

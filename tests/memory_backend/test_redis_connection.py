"""redis_connection: it finds its server, by Sentinels or in a Cluster, and counts fail-overs."""

import logging
import socket
import threading

import pytest

from distrl.errors import MemoryBackendError, OutageError
from distrl.memory_backend import redis_client
from distrl.memory_backend.redis_address import parse_address
from distrl.memory_backend.redis_client import connect

KEY = "distrl:default:{r}:run"


class Server:
    """A server that answers each command by a function; INFO and CLIENT as a master does unless that is changed."""

    def __init__(self, replication="a", **info):
        self.info = {"redis_version": "7.0.0", "role": "master", "master_replid": replication}
        self.info |= {"master_repl_offset": 7, "slave0": "ip=10.0.0.2,port=6379,state=online,offset=7,lag=0", **info}
        self.replies, self.asked = {}, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.at = f"127.0.0.1:{self.port}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection, connection.makefile("rwb") as lines:
            while (first := lines.readline()).startswith(b"*"):
                words = [(lines.readline(), lines.readline())[1].strip().decode() for _ in range(int(first[1:]))]
                self.asked.append(words)
                lines.write(self.reply(words[0]))
                lines.flush()

    def reply(self, name):
        if name in self.replies:
            return self.replies[name].encode() + b"\r\n"
        text = "\r\n".join(f"{field}:{value}" for field, value in self.info.items())
        return f"${len(text)}\r\n{text}\r\n".encode() if name == "INFO" else b"+OK\r\n"

    def names(self, other):
        """Answer as a Sentinel whose master is `other`."""
        self.replies["SENTINEL"] = f"*2\r\n$9\r\n127.0.0.1\r\n${len(str(other.port))}\r\n{other.port}"


@pytest.fixture
def make():
    """A function that starts a server."""
    servers = []

    def started(*arguments, **info):
        servers.append(Server(*arguments, **info))
        return servers[-1]

    yield started
    for server in servers:
        server.listener.close()


def client(url, **options):
    return connect(parse_address(url), **{"name": "actor 1", "give_up_s": 10.0, **options})


def absent():
    """A port on which no server listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def refusal(url, error=MemoryBackendError, **options):
    with pytest.raises(error) as caught:
        client(url, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_connection_says_its_name_and_asks_what_the_server_is(make):
    server = make()
    client(f"redis://{server.at}/2").close()
    assert server.asked == [["SELECT", "2"], ["CLIENT", "SETNAME", "distrl:actor-1"], ["INFO"]]


def test_a_replica_is_an_outage(make):
    told = refusal(f"redis://{make(role='slave').at}", OutageError, first_connect_s=0.1)
    assert "has refused for 0.1 s" in told
    assert "is a replica); name the master" in told


@pytest.mark.parametrize(
    ("mode", "remedy"), [("sentinel", "redis+sentinel://host:port/NAME"), ("cluster", "redis+cluster://host:port")]
)
def test_a_server_of_another_kind_than_the_url_says(make, mode, remedy):
    assert f"; use {remedy}" in refusal(f"redis://{make(redis_mode=mode).at}")


def test_a_server_that_is_none_of_a_cluster_by_its_own_word(make):
    server = make(redis_mode="standalone")
    server.replies["CLUSTER"] = "-ERR This instance has cluster support disabled"
    url = f"redis+cluster://{server.at}"
    assert refusal(url) == f"Redis at {url} is no node of a Cluster; use redis://host:port"
    server.replies["CLUSTER"] = "*0"  # a proxy of a Cluster
    client(url).close()


@pytest.mark.parametrize("words", ["NOPERM this user has no permissions", "ERR unknown command"])
def test_what_a_server_does_not_allow_is_logged_once(make, words, caplog):
    server = make()
    server.replies |= {"INFO": f"-{words}", "CLIENT": f"-{words}", "WAIT": f"-{words}"}
    with caplog.at_level(logging.WARNING):
        engine = client(f"redis://{server.at}")
        engine.close()
        assert engine.call("GET", KEY)
        assert engine.confirm()
        assert (engine.keeps_expiring, engine.failovers, engine.history) == (True, 0, "")
        assert engine.goes_on_from("a:process")
        engine.close()
    assert len([record for record in caplog.records if "CLIENT SETNAME" in record.message]) == 1
    assert len([record for record in caplog.records if "INFO: its version" in record.message]) == 1


def test_what_was_written_before_a_fail_over_is_not_confirmed_by_replicas_of_the_new_master(make):
    server = make("a", connected_slaves=2)
    server.replies["WAIT"] = ":2"
    engine = client(f"redis://{server.at}")
    engine.call("GET", KEY)
    server.info["master_replid"] = "b"
    engine.close()  # its next command finds another server
    assert not engine.confirm()
    assert engine.confirm()  # what it writes from now on
    engine.close()


@pytest.mark.parametrize(("confirmed", "expected"), [(0, False), (1, True), (2, True)])
def test_a_confirmation_of_replicas(make, confirmed, expected):
    server = make(connected_slaves=2)
    server.replies["WAIT"] = f":{confirmed}"
    engine = client(f"redis://{server.at}")
    assert engine.confirm() is expected
    look = ["INFO", "replication"]
    sent = [look, ["WAIT", "1", "1000"], *([look] if expected else [])]
    assert server.asked[-len(sent) :] == sent
    engine.close()


def test_a_wait_for_nothing_confirms_nothing_that_a_replica_lacks(make, monkeypatch):
    """A connection that has written nothing need not wait for anything, as Valkey 9 sees it."""
    monkeypatch.setattr(redis_client, "_REPORT_S", 0.0)
    server = make(connected_slaves=2, master_repl_offset=9)
    server.replies["WAIT"] = ":2"
    engine = client(f"redis://{server.at}")
    assert not engine.confirm()
    server.info["slave1"] = "ip=10.0.0.3,port=6379,state=online,offset=9,lag=0"
    assert engine.confirm()
    engine.close()


def test_a_restarted_server_has_another_history(make):
    server = make("a")
    engine = client(f"redis://{server.at}")
    engine.close()
    engine.call("GET", KEY)
    assert engine.failovers == 0
    engine.close()
    server.info["master_replid"] = "b"
    engine.call("GET", KEY)
    assert engine.failovers == 1
    engine.close()


def test_a_master_that_gets_its_first_replica_has_a_new_name_for_the_same_history(make):
    server = make("a", run_id="process", master_replid2="0" * 40)
    engine = client(f"redis://{server.at}")
    before = engine.history
    engine.close()
    server.info["master_replid"] = "b"
    engine.call("GET", KEY)
    assert engine.failovers == 0
    assert engine.history != before
    assert engine.goes_on_from(before)  # as a learner asks that takes over
    engine.close()


@pytest.mark.parametrize(
    ("change", "goes_on"),
    [
        ({}, True),
        ({"master_replid": "b", "run_id": "other"}, False),  # a server that was started again
        ({"master_replid": "b", "master_replid2": "a"}, False),  # made a replica and a master again
        ({"master_replid": "b", "run_id": "other", "master_replid2": "a"}, False),  # a replica that was promoted
    ],
)
def test_another_server_or_another_life_is_another_history(make, change, goes_on):
    server = make("a", run_id="process", master_replid2="0" * 40)
    engine = client(f"redis://{server.at}")
    before = engine.history
    engine.close()
    server.info |= change
    engine.call("GET", KEY)
    assert (engine.failovers, engine.goes_on_from(before)) == (0 if goes_on else 1, goes_on)
    engine.close()


def test_a_learner_that_takes_over_in_a_cluster_cannot_tell_a_moved_slot_but_a_promoted_replica(make):
    server = node(make, "b", run_id="process", master_replid2="a")
    engine = client(f"redis+cluster://{server.at}")
    engine.call("GET", KEY)
    assert [engine.goes_on_from(f"{name}:other") for name in "abc"] == [False, True, True]
    engine.close()


def test_sentinels_are_asked_in_turn_and_anew_after_every_break(make):
    first, second, one, two = make("a"), make("b"), make(), make()
    one.names(first)
    two.names(second)
    engine = client(f"redis+sentinel://{absent()},{one.at},{two.at}/mymaster")
    engine.call("GET", KEY)
    assert first.asked[-1] == ["GET", KEY]
    assert one.asked == [["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"]]
    engine.close()
    engine.call("GET", KEY)  # the second Sentinel knows of a fail-over
    assert second.asked[-1] == ["GET", KEY]
    assert engine.failovers == 1
    engine.close()


def test_a_master_that_a_sentinel_names_and_that_is_none_any_more_is_not_used(make):
    demoted, master, late, fresh = make(role="slave"), make(), make(), make()
    late.names(demoted)
    fresh.names(master)
    engine = client(f"redis+sentinel://{late.at},{fresh.at}/mymaster")
    engine.call("GET", KEY)
    assert (engine.interruptions, master.asked[-1]) == (1, ["GET", KEY])
    engine.close()


def test_sentinels_that_know_no_such_master(make):
    sentinel = make()
    sentinel.replies["SENTINEL"] = "*-1"
    told = refusal(f"redis+sentinel://{sentinel.at},{absent()}/other", OutageError, first_connect_s=0.1)
    assert f"has refused for 0.1 s (no Sentinel names the master: {sentinel.at} knows no master 'other'" in told
    assert told.endswith(
        "; end the URL with the name that `sentinel monitor` gives the master: redis+sentinel://host:26379/NAME"
    )


def test_sentinels_that_do_not_answer_are_unreachable(make):
    told = refusal(f"redis+sentinel://{absent()}/mymaster", OutageError, first_connect_s=0.1)
    assert "is unreachable for 0.1 s (no Sentinel names the master: " in told
    assert told.endswith("; check that it runs and the URL")


@pytest.mark.parametrize("words", ["NOAUTH Authentication required.", "ERR unknown command 'SENTINEL'"])
def test_a_sentinel_that_refuses_for_good(make, words):
    sentinel = make()
    sentinel.replies["SENTINEL"] = f"-{words}"
    told = refusal(f"redis+sentinel://{sentinel.at}/mymaster", give_up_s=10.0**6, first_connect_s=10.0**6)
    assert f"the Sentinel at {sentinel.at} refuses: {words.split(' ', 1)[1]}" in told
    assert told.endswith("; check its port, sentinel_user and DISTRL_SENTINEL_PASSWORD")


def node(make, replication, **info):
    return make(replication, redis_mode="cluster", **info)


def test_the_owner_of_the_slot_is_followed_and_is_no_fail_over(make):
    seed, owner, next_owner = (node(make, name) for name in "abc")
    seed.replies["GET"] = f"-MOVED 1 {owner.at}"
    engine = client(f"redis+cluster://{absent()},{seed.at}")
    engine.call("GET", KEY)
    assert owner.asked[-1] == ["GET", KEY]
    owner.replies["GET"] = f"-MOVED 1 {next_owner.at}"
    engine.call("GET", KEY)
    assert next_owner.asked[-1] == ["GET", KEY]
    assert engine.failovers == 0
    engine.close()


def test_an_owner_that_cannot_be_reached_is_the_reason_and_not_the_redirection_to_it(make):
    seed, gone = node(make, "a"), absent()
    seed.replies["GET"] = f"-MOVED 1 {gone}"
    engine = client(f"redis+cluster://{seed.at}", give_up_s=0.2)
    with pytest.raises(OutageError) as caught:
        engine.call("GET", KEY)
    assert f"is unreachable for 0.2 s (Error 111 connecting to {gone}" in str(caught.value)
    assert "MOVED" not in str(caught.value)
    engine.close()


def test_a_replica_that_has_taken_over_a_slot_is_a_fail_over(make):
    owner, seed = node(make, "a"), node(make, "s")
    promoted = node(make, "b", master_replid2="a")
    engine = client(f"redis+cluster://{owner.at},{seed.at}")
    engine.call("GET", KEY)
    seed.replies["GET"] = f"-MOVED 1 {promoted.at}"
    owner.replies["GET"] = "-CLUSTERDOWN the cluster is down"
    engine.call("GET", KEY)
    assert promoted.asked[-1] == ["GET", KEY]
    assert engine.failovers == 1
    engine.close()


def test_a_node_that_says_that_the_cluster_is_down_is_no_fail_over(make):
    owner, other = node(make, "a"), node(make, "b")
    engine = client(f"redis+cluster://{owner.at},{other.at}", give_up_s=0.0)
    engine.call("GET", KEY)
    for server in (owner, other):
        server.replies["GET"] = "-CLUSTERDOWN the cluster is down"
        with pytest.raises(OutageError):
            engine.call("GET", KEY)
        assert server.asked[-1] == ["GET", KEY]
    owner.replies.clear()
    engine.call("GET", KEY)
    assert engine.failovers == 0
    engine.close()


def test_an_owner_that_names_the_replica_that_took_over_from_it_is_a_fail_over(make):
    owner, promoted = node(make, "a"), node(make, "b", master_replid2="a")
    engine = client(f"redis+cluster://{owner.at}")
    engine.call("GET", KEY)
    owner.replies["GET"] = f"-MOVED 1 {promoted.at}"
    engine.call("GET", KEY)
    assert engine.failovers == 1
    engine.close()


def test_a_node_that_answers_for_no_key_is_no_fail_over(make):
    owner, other = node(make, "a"), node(make, "b")
    engine = client(f"redis+cluster://{owner.at},{other.at}")
    engine.call("GET", KEY)
    owner.replies["PING"] = "-CLUSTERDOWN the cluster is down"
    engine.call("PING")
    assert other.asked[-1] == ["PING"]
    other.replies["GET"] = f"-MOVED 1 {owner.at}"
    engine.call("GET", KEY)
    assert engine.failovers == 0
    engine.close()

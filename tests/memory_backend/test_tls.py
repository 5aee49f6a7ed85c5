"""TLS to a real Redis: what connects, and one line for each thing that does not."""

import stat

import pytest

from distrl.apps.commands.main import main
from distrl.apps.doctor import machine
from distrl.config.memory import TlsConfig
from distrl.errors import ConfigError, MemoryBackendError, OutageError
from distrl.launch import joined_actors
from distrl.memory_backend import redis_client, tls
from distrl.memory_backend.backend import connect_engine
from distrl.memory_backend.redis_address import parse_address
from distrl.memory_backend.redis_client import connect
from tests.faults.tls_redis import PASSWORD, Authority, TlsRedis

pytestmark = [pytest.mark.redis, pytest.mark.row("S05")]


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls") / "own")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls") / "stranger")


@pytest.fixture(scope="module")
def certificate(authority):
    return authority.sign("server")


@pytest.fixture(scope="module")
def server(authority, certificate):
    started = TlsRedis(authority, certificate)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def strict(authority, certificate):
    """A server that wants certificates of its clients."""
    started = TlsRedis(authority, certificate, clients=authority)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def old(authority):
    """A server whose certificate has expired."""
    started = TlsRedis(authority, authority.sign("old", days=-1))
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def password(monkeypatch):
    monkeypatch.setenv("DISTRL_REDIS_PASSWORD", PASSWORD)


def answers(url, **files):
    client = connect_engine(
        tls.with_files(url, TlsConfig(**{name: str(file) for name, file in files.items()})), name="x", give_up_s=0.2
    )
    try:
        return client.call("PING")
    finally:
        client.close()


def refusal(url, error=MemoryBackendError, **files):
    with pytest.raises(error) as caught:
        answers(url, **files)
    assert "\n" not in str(caught.value)
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


def test_a_server_whose_certificate_the_named_authority_has_signed(server, authority):
    assert answers(server.url, ca_file=authority.file) is True


def test_a_client_with_a_certificate(strict, authority, certificate):
    assert answers(strict.url, ca_file=authority.file, cert_file=certificate[0], key_file=certificate[1]) is True


def test_files_are_read_at_every_connection(server, authority, stranger, tmp_path):
    file = tmp_path / "ca.crt"
    file.write_bytes(authority.file.read_bytes())
    client = connect_engine(f"{server.url}?ca_file={file}", name="x", give_up_s=0.2)
    assert client.call("PING") is True
    file.write_bytes(stranger.file.read_bytes())
    assert client.call("PING") is True  # over the connection that is open
    client.close()
    with pytest.raises(MemoryBackendError, match="name the authority"):
        client.call("PING")


@pytest.mark.parametrize("trusted", ["stranger", None])
def test_an_unknown_authority(server, stranger, trusted):
    files = {"ca_file": stranger.file} if trusted else {}
    told = refusal(server.url, **files)
    assert told.startswith(f"Redis at {server.url}")
    assert "self-signed certificate" in told
    assert told.endswith("; name the authority that has signed it: memory.tls.ca_file, or ?ca_file= in the URL")


def test_an_expired_certificate(old, authority):
    told = refusal(old.url, ca_file=authority.file)
    assert "certificate has expired" in told
    assert told.endswith("; the certificate is too old; renew it")


def test_another_host(server, authority):
    told = refusal(server.url.replace("localhost", "127.0.0.1"), ca_file=authority.file)
    assert told.endswith(
        "; use a name of its certificate: in the URL, and where Sentinels or nodes of a Cluster announce "
        "their addresses"
    )


def test_a_refused_certificate_is_final_at_once_where_no_connection_has_worked(server, stranger):
    with pytest.raises(MemoryBackendError) as caught:
        connect(parse_address(f"{server.url}?ca_file={stranger.file}"), name="x", give_up_s=1e6, first_connect_s=1e6)
    assert f"Redis at {server.url} is unreachable (" in str(caught.value)
    assert not isinstance(caught.value, OutageError)


def test_actors_that_wait_do_not_wait_for_another_certificate(server, stranger, capsys, monkeypatch, tmp_path):
    def waited(seconds):
        raise AssertionError("it waits for ever")

    monkeypatch.setattr(joined_actors.time, "sleep", waited)
    monkeypatch.chdir(tmp_path)
    url = f"{server.url}?ca_file={stranger.file}"
    assert main(["actors", "--run-id", "r", "--count", "1", "--wait", "--redis-url", url]) == 6
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "memory.tls.ca_file, or ?ca_file= in the URL" in said.err


def test_a_real_server_is_no_node_of_a_cluster(server, authority):
    assert "is no node of a Cluster" in refusal(server.url.replace("rediss", "rediss+cluster"), ca_file=authority.file)


@pytest.fixture
def urls(server, strict, old, authority, stranger):
    """URLs of connections that TLS refuses, by their mistake."""
    trusted = f"?ca_file={authority.file}"
    return {
        "wrong authority": f"{server.url}?ca_file={stranger.file}",
        "expired": f"{old.url}{trusted}",
        "wrong host": f"{server.url.replace('localhost', '127.0.0.1')}{trusted}",
        "plain client": server.url.replace("rediss", "redis"),
        "no client certificate": f"{strict.url}{trusted}",
    }


COMMANDS = {
    "train": (("train", "--preset", "cartpole-impala"), 6),
    "actor": (("actor", "--run-id", "r", "--id", "0"), 6),
    "actors": (("actors", "--run-id", "r", "--count", "1"), 6),
    "status": (("status", "--run-id", "r"), 6),
    "doctor": (("doctor",), 1),  # as with every problem that it finds
}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("wrong authority", "memory.tls.ca_file, or ?ca_file= in the URL"),
        ("expired", "the certificate is too old; renew it"),
        ("wrong host", "use a name of its certificate"),
        ("plain client", "if it speaks TLS at this port, name it by rediss://"),
        ("no client certificate", "memory.tls.cert_file and memory.tls.key_file"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_in_one_line(urls, capsys, monkeypatch, tmp_path, command, wrong, told):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine, "examine_machine", lambda runs: iter(()))
    monkeypatch.setitem(redis_client.connect.__kwdefaults__, "first_connect_s", 0.1)  # for what may be an outage
    arguments, code = COMMANDS[command]
    assert main([*arguments, "--redis-url", urls[wrong]]) == code
    said = capsys.readouterr()
    (line,) = [line for line in (said.out + said.err).splitlines() if "Redis at " in line]
    assert told in line
    if code == 6:
        assert (said.out, said.err.splitlines()) == ("", [line])
    assert PASSWORD not in said.out + said.err
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_plain_client(server):
    told = refusal(server.url.replace("rediss", "redis"))
    assert told.endswith("; if it speaks TLS at this port, name it by rediss://")


def test_a_client_without_the_certificate_that_is_wanted(strict, authority):
    assert "memory.tls.cert_file and memory.tls.key_file" in refusal(strict.url, ca_file=authority.file)


def test_a_client_whose_certificate_a_stranger_has_signed(strict, authority, stranger):
    certificate, key = stranger.sign("client")
    told = refusal(strict.url, ca_file=authority.file, cert_file=certificate, key_file=key)
    assert told.startswith(f"Redis at {strict.url} is unreachable")


def test_checks_cannot_be_switched_off(server):
    told = refusal(f"{server.url}?ssl_cert_reqs=none", ConfigError)
    assert "unknown option" in told
    assert "ssl_cert_reqs" in told


def test_files_that_cannot_be_used(server, authority, certificate, tmp_path):
    def refused(**files):
        return refusal(server.url, ConfigError, **files)

    assert "both, or neither" in refused(ca_file=authority.file, cert_file=certificate[0])
    assert f"ca_file {tmp_path}/none cannot be used on this host: No such file" in refused(ca_file=tmp_path / "none")
    odd = tmp_path / "odd"
    odd.write_text("no certificate")
    assert f"ca_file {odd} cannot be used" in refused(ca_file=odd)
    odd.chmod(0o600)
    assert "cannot be used on this host" in refused(cert_file=certificate[0], key_file=odd)
    odd.chmod(0o644)
    assert refused(cert_file=certificate[0], key_file=odd) == f"others may read key_file {odd}; chmod 600 {odd}"
    assert stat.S_IMODE(odd.stat().st_mode) == 0o644


def test_the_files_of_the_settings_become_options_of_the_url(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    url = tls.with_files("rediss://h/0?namespace=a&cert_file=own.crt", TlsConfig(ca_file="a b.crt"))
    assert url == f"rediss://h/0?namespace=a&cert_file={tmp_path}/own.crt&ca_file={tmp_path}/a+b.crt"
    assert tls.with_files("unix:///run/redis.sock", TlsConfig()) == "unix:///run/redis.sock"
    with pytest.raises(ConfigError, match=r"memory.tls.ca_file /x and the URL's /y differ"):
        tls.with_files("rediss://h?ca_file=/y", TlsConfig(ca_file="/x"))


@pytest.mark.parametrize(
    ("text", "secure", "certificate", "told"),
    [
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", True, False, "redis:// instead of rediss://"),
        ("certificate verify failed: certificate is not yet valid", True, False, "the clocks"),
        ("CERTIFICATE_VERIFY_FAILED] CA cert does not include key usage extension", True, False, "keyUsage=critical"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]", True, False, "; it wants a client's certificate"),
        ("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca", True, True, "authority of the client's"),
        ("(104, 'Connection reset by peer')", False, False, "name it by rediss://"),
        ("(104, 'Connection reset by peer')", True, False, "perhaps it wants a client's certificate"),
        ("(104, 'Connection reset by peer')", True, True, ""),
        ("(111, 'Connection refused')", True, True, ""),
    ],
)
def test_advice(text, secure, certificate, told):
    assert told in tls.advice(text, secure=secure, certificate=certificate)
    assert bool(told) == bool(tls.advice(text, secure=secure, certificate=certificate))

"""TLS to Redis: certificates of the URL, and what to do about a connection that fails for them."""

import os
import ssl
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

from distrl.config.memory import TlsConfig
from distrl.config.secrets import check_private
from distrl.errors import ConfigError

FILES = tuple(TlsConfig.model_fields)
"""Options of a URL: `ca_file`, `cert_file`, `key_file`."""

_ADVICE = {
    "certificate has expired": "the certificate is too old; renew it",
    "is not yet valid": "compare the clocks of both hosts",
    "mismatch, certificate is not valid for": (
        "use a name of its certificate: in the URL, and where Sentinels or nodes of a Cluster announce their addresses"
    ),
    "does not include key usage": (
        "make the authority's certificate anew with keyUsage=critical,keyCertSign,cRLSign, which Python 3.13 wants"
    ),
    "CERTIFICATE_VERIFY_FAILED": "name the authority that has signed it: memory.tls.ca_file, or ?ca_file= in the URL",
    "WRONG_VERSION_NUMBER": "it does not speak TLS at this port: redis:// instead of rediss://",
    "CERTIFICATE_REQUIRED": (
        "it wants a client's certificate: memory.tls.cert_file and memory.tls.key_file, or ?cert_file=…&key_file=…"
    ),
    "UNKNOWN_CA": "it does not know the authority of the client's certificate, memory.tls.cert_file",
}
"""Words of OpenSSL -> what to do."""
_CLOSED = ("Connection reset", "Connection closed", "EOF occurred", "Broken pipe")


def with_files(url: str, files: TlsConfig) -> str:
    """Return the URL with the files of `memory.tls` as options, their paths absolute.

    Raises:
        ConfigError: The URL names another one of these files.
    """
    address, _, query = url.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in FILES:
        given = getattr(files, name)
        if name in options:
            options[name] = os.path.abspath(os.path.expanduser(options[name]))
        if given is not None and options.setdefault(name, given) != given:
            raise ConfigError(f"memory.tls.{name} {given} and the URL's {options[name]} differ; give one of them")
    return f"{address}?{urlencode(options, safe='/')}" if options else address


def context(files: Mapping[str, str]) -> ssl.SSLContext:
    """Return a context that checks the server's certificate and host name, for TLS 1.2 and newer.

    Args:
        files: Of `ca_file`, `cert_file` and `key_file` those that are given. With `ca_file` that authority alone is
            trusted, without it those of the system.

    Raises:
        ConfigError: A file cannot be used.
    """
    ca_file, cert_file, key_file = (files.get(name) for name in FILES)
    if (cert_file is None) != (key_file is None):
        raise ConfigError("TLS: cert_file and key_file belong together; give both, or neither")
    if key_file is not None:
        check_private(key_file, "key_file")
    try:
        made = ssl.create_default_context(cafile=ca_file)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        if cert_file is not None:
            made.load_cert_chain(cert_file, key_file, password=lambda: "")  # else OpenSSL asks at the terminal
    except OSError as error:  # ssl.SSLError is one
        named = ", ".join(f"{name} {path}" for name, path in files.items())
        raise ConfigError(
            f"TLS: {named} cannot be used on this host: {error.strerror or error}; "
            "each is a PEM file, and a key has no passphrase"
        ) from error
    return made


def refuses(text: str) -> bool:
    """Return whether an error's text says that one end refuses the other's certificate, or TLS."""
    return any(words in text for words in _ADVICE)


def advice(text: str, *, secure: bool = True, certificate: bool = True) -> str:
    """Return what to do about a broken connection, with a semicolon ahead; empty if it is none of TLS.

    Args:
        text: The error's.
        secure: Whether the URL asks for TLS. If not, a server that hangs up at once may expect it.
        certificate: Whether the client has one of its own. If not, a server that hangs up may expect it.
    """
    for words, remedy in _ADVICE.items():
        if words in text:
            return f"; {remedy}"
    if not any(words in text for words in _CLOSED):
        return ""
    if not secure:
        return "; if it speaks TLS at this port, name it by rediss://"
    return "" if certificate else f"; perhaps {_ADVICE['CERTIFICATE_REQUIRED']}"

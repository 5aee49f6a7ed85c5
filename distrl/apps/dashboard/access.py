"""The dashboard's tokens of the environment, and the headers that keep foreign pages out.

Foreign pages may not read and control runs: the Host header must name loopback where there is no token, and requests
that act need a header that a foreign page cannot send. With a token, every request needs `Authorization: Bearer …` or
the cookie of a session from /login; others get 401.
"""

from collections.abc import Mapping

from distrl.apps.web.access import Access, token_of_environment

TOKEN_VARIABLE = "DISTRL_DASHBOARD_TOKEN"
READ_ONLY_TOKEN_VARIABLE = "DISTRL_DASHBOARD_READ_ONLY_TOKEN"
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "media-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""Headers of every response."""
CONTROL_HEADER = "x-distrl"


def access_of_environment(host: str) -> Access:
    """Return the access to a dashboard whose tokens come from the environment only."""
    return Access(host, token_of_environment(TOKEN_VARIABLE), token_of_environment(READ_ONLY_TOKEN_VARIABLE))

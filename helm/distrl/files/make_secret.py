"""Make the release's Secret if the cluster has none, and add the keys that it lacks. No key that is there is changed.

Run in a Pod: argument 1 is the Secret's name, 2 the release, the others are the keys, each of 64 hexadecimal digits.
"""

import base64
import json
import os
import secrets
import ssl
import sys
import urllib.error
import urllib.request

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def request(method, path, body=None, kind="application/json"):
    """Return the answer of the Kubernetes API, or None where there is no such object."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    with open(f"{ACCOUNT}/token") as file:
        token = file.read()
    address = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    sent = urllib.request.Request(address + path, None if body is None else json.dumps(body).encode(), method=method)
    sent.add_header("Authorization", f"Bearer {token}")
    sent.add_header("Content-Type", kind)
    try:
        with urllib.request.urlopen(
            sent, timeout=10, context=ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")
        ) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 404 and method == "GET":
            return None
        sys.exit(f"the Kubernetes API refuses {method} {path}: {error.code} {error.reason}")
    except OSError as error:
        sys.exit(f"the Kubernetes API at {address} cannot be reached: {error}")


def main(name, release, *keys):
    """Make the Secret, or add the keys that it lacks."""
    with open(f"{ACCOUNT}/namespace") as file:
        path = f"/api/v1/namespaces/{file.read()}/secrets"
    found = request("GET", f"{path}/{name}")
    have = {} if found is None else found.get("data") or {}
    missing = {key: base64.b64encode(secrets.token_hex(32).encode()).decode() for key in keys if key not in have}
    if found is None:
        labels = {"app.kubernetes.io/name": "distrl", "app.kubernetes.io/instance": release}
        request("POST", path, {"metadata": {"name": name, "labels": labels}, "type": "Opaque", "data": missing})
    elif missing:
        request("PATCH", f"{path}/{name}", {"data": missing}, "application/merge-patch+json")
    print(f"Secret {name}: {', '.join(missing) or 'no key'} added")


main(*sys.argv[1:])

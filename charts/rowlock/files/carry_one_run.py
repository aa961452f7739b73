"""Apply an AgentRun and wait for its end: `helm test` runs this in the operator's image."""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request

ACCOUNT = os.environ.get("ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount")
SERVER = os.environ.get("SERVER", "https://kubernetes.default.svc")
NAMESPACE = os.environ["NAMESPACE"]
AGENT = os.environ["AGENT"]
DEADLINE = time.monotonic() + float(os.environ["TIMEOUT_SECONDS"])
RUNS = f"{SERVER}/apis/rowlock.dev/v1alpha1/namespaces/{NAMESPACE}/agentruns"


def ask(method, url, body=None):
    with open(f"{ACCOUNT}/token") as file:
        headers = {"Authorization": f"Bearer {file.read()}", "Content-Type": "application/json"}
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(url, data, headers, method=method)
    context = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        sys.exit(f"{method} {url}: {error.code} {error.read().decode(errors='replace')}")


def started():
    metadata = {"generateName": f"{AGENT}-", "labels": {"rowlock.dev/helm-test": AGENT}}
    spec = {"agentRef": {"name": AGENT}, "input": {"text": '{"name": "helm"}'}}
    head = {"apiVersion": "rowlock.dev/v1alpha1", "kind": "AgentRun"}
    return ask("POST", RUNS, {**head, "metadata": metadata, "spec": spec})["metadata"]["name"]


def end_of(name):
    shown = None
    while time.monotonic() < DEADLINE:
        status = ask("GET", f"{RUNS}/{name}").get("status", {})
        now = [status.get("phase", "not seen by the operator yet")]
        now += [each.get("message", "") for each in status.get("conditions", [])]
        if now != shown:
            print(f"{name}: {'; '.join(filter(None, now))}", flush=True)
            shown = now
        if status.get("phase") in ("Succeeded", "Failed", "Cancelled"):
            return status
        time.sleep(1)
    return None


name = started()
status = end_of(name)
ask("DELETE", f"{RUNS}/{name}")
if status is None:
    sys.exit(f"{name} did not end in time; see its last line, and `kubectl describe workerpool`")
if status["phase"] != "Succeeded":
    sys.exit(f"{name} ended {status['phase']}")

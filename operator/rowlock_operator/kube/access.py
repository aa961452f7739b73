"""Which credentials are used when nobody says more than the usual."""

from __future__ import annotations

import os
from pathlib import Path

from rowlock_operator.kube import kubeconfig
from rowlock_operator.kube.credentials import Access, in_cluster


def find_access(file: Path | None = None, *, context: str | None = None) -> Access:
    """Return the access to use: `file`, else KUBECONFIG, else the Pod's, else ~/.kube/config.

    Parameters
    ----------
    context
        A context of the kubeconfig; with it the Pod's own service account is not looked at.

    Raises
    ------
    CredentialsError
        There are none, or they cannot be used.
    """
    if file:
        return kubeconfig.load([file], context=context)
    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    files = kubeconfig.default_files()
    if files and ("KUBECONFIG" in os.environ or context or not in_pod):
        return kubeconfig.load(files, context=context)
    return in_cluster()

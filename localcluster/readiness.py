"""Ask components whether they are ready, until they are or the time is up."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .components import Plan
from .errors import ComponentError
from .layout import last_lines

_PAUSE = 0.05


@dataclass(frozen=True)
class Probe:
    """A path that a component answers with 200 once it is ready."""

    component: str
    path: str


PROBES = {
    "etcd": (Probe("etcd", "/health"),),
    "apiserver": (Probe("apiserver", "/readyz"),),
    "controller-manager": (
        Probe("controller-manager", "/healthz"),
        # Healthy is not enough: before this account exists, the API server refuses pods.
        Probe("apiserver", "/api/v1/namespaces/default/serviceaccounts/default"),
    ),
    "scheduler": (Probe("scheduler", "/healthz"),),
}


class Prober:
    """Sends probes to the components of one cluster.

    Args:
        plan: The cluster; its certificates must be written already.
        token: The admin's token.
        exit_codes: Returns the components that ended.
    """

    def __init__(self, plan: Plan, *, token: str, exit_codes: Callable[[], dict[str, int]]) -> None:
        self._plan = plan
        self._token = token
        self._exit_codes = exit_codes
        pki = plan.layout.pki
        self._tls = ssl.create_default_context(cafile=str(plan.layout.ca))
        self._tls.load_cert_chain(pki / "server.crt", pki / "server.key")

    def wait(self, components: Iterable[str], *, until: float) -> None:
        """Return once every component is ready.

        Args:
            components: Those to wait for.
            until: Deadline, as `time.monotonic` counts.

        Raises:
            ComponentError: One ended or the time is up; with the last lines of its log.
        """
        waiting = [probe for name in components for probe in PROBES[name]]
        while waiting:
            self._raise_if_ended()
            waiting = [probe for probe in waiting if not self._answers(probe)]
            if waiting and time.monotonic() > until:
                raise self._error(waiting[0].component, f"did not answer {waiting[0].path} in time")
            time.sleep(_PAUSE if waiting else 0)

    def _raise_if_ended(self) -> None:
        for component, code in self._exit_codes().items():
            raise self._error(component, f"ended with exit code {code}")

    def _error(self, component: str, what: str) -> ComponentError:
        tail = last_lines(self._plan.layout.log(component))
        return ComponentError(f"{component} {what}; the last lines of its log:\n{tail}")

    def _answers(self, probe: Probe) -> bool:
        port = self._plan.ports.of(probe.component)
        # Only the API server knows the token; the others must not see it.
        bearer = {"Authorization": f"Bearer {self._token}"}
        headers = bearer if probe.component == "apiserver" else {}
        address = self._plan.address_of(probe.component)
        connection = http.client.HTTPSConnection(address, port, timeout=5, context=self._tls)
        try:
            connection.request("GET", probe.path, headers=headers)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

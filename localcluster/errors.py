"""Errors of a local cluster.

::

    LocalClusterError            catch this one
    ├── ToolchainError           no usable Go, and none could be installed
    ├── BuildError               a binary did not compile, or KUBEBUILDER_ASSETS lacks it
    ├── PackageError             a package that nodes need could not be installed
    ├── ImageError               an image could not be brought into a node
    ├── ComponentError           a component ended or was not ready in time
    ├── KeeperError              the process that owns the components is gone
    ├── KubectlError             kubectl ended with an exit code other than 0
    ├── NotRunningError          no cluster of that name is up
    ├── AlreadyRunningError      a cluster of that name is up or being started
    └── UsageError               a request that can never work as it stands

Every message says what failed and, where there is something to do, what to do.
Only `ComponentError` and `KubectlError` may go away by trying again.
"""

from __future__ import annotations


class LocalClusterError(Exception):
    """Base of everything that this package raises on purpose."""


class ToolchainError(LocalClusterError):
    """No Go of a sufficient version is here, and installing one failed."""


class BuildError(LocalClusterError):
    """A control-plane binary could not be built or found."""


class PackageError(LocalClusterError):
    """A package of the system that nodes need could not be installed."""


class ImageError(LocalClusterError):
    """An image could not be brought into a node."""


class ComponentError(LocalClusterError):
    """A component ended, or was not ready before the deadline."""


class KeeperError(LocalClusterError):
    """The keeper ended or answered with an error."""


class KubectlError(LocalClusterError):
    """kubectl failed; the message holds its standard error."""


class NotRunningError(LocalClusterError):
    """No cluster of that name is running."""


class AlreadyRunningError(LocalClusterError):
    """A cluster of that name is running or being started."""


class UsageError(LocalClusterError):
    """The request cannot work: a bad name, an unknown component, a wrong setting."""

"""The targets and the account of the integration tests, for tools that fail on the way to them."""

from tests.integration.conftest import kube, local, over_ssh, pod, sshd, surroundings, vast, vastai  # noqa: F401

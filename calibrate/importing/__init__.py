"""Logs of benchmarks that others have run, as samples: nccl-tests, rccl-tests, nvbandwidth and perftest, text and JSON.

Which tool wrote a file shows in its content. Only numbers, sizes and the names of GPUs and libraries are taken: hosts,
addresses, command lines and the environment that some logs hold are read past and never stored.
"""

from .dispatch import import_logs
from .options import Network, Options

__all__ = ["Network", "Options", "import_logs"]

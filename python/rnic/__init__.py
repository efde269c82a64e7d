"""rnic, an RDMA NIC made of software: programs that use libibverbs run on any Linux machine.

>>> import rnic
>>> rnic.run(["ibv_devinfo"], check=True)                    # doctest: +SKIP
>>> subprocess.Popen(["ib_send_lat"], env=rnic.env())        # doctest: +SKIP

``pytest --rnic`` gives the NIC to a test suite.
"""

from __future__ import annotations

from ._program import RnicError, command, env, explain, find, run

version = "0.1.0"
__version__ = version

__all__ = ["RnicError", "command", "env", "explain", "find", "run", "version"]

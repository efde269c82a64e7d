"""timed.py BYTES COMMAND...: how fast a command moved so many bytes, its start included."""

import subprocess
import sys
import time

began = time.perf_counter()
subprocess.run(sys.argv[2:], check=True)
print(f"timed: {int(sys.argv[1]) / (time.perf_counter() - began) / 1e6:.1f} MB/s")

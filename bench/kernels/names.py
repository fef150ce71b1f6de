"""What candidates are called, for those who measure and those who read the files."""

import re

OURS = "AsyncI"
BASELINES = ("AsyncI CUDA cores", "AsyncI Triton, halo", "AsyncI Triton, gather")
READ = "read K and V"


def family(name: str) -> str:
    """The name without a setting: of a family the fastest is shown."""
    return re.sub(rf", \d+ splits$|(?<=^{READ}) \d+$", "", name)


def is_ours(name: str) -> bool:
    return name.startswith(OURS) and name not in BASELINES

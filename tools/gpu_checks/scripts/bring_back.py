"""Run a script as `python SCRIPT ARGS` would, then save those of its globals that were asked for.

python bring_back.py FOLDER NAMES SCRIPT ARGS; torchrun starts it, once a rank.
"""

import os
import runpy
import sys

from die_with_parent import die_with_parent

die_with_parent()  # torchrun gives each rank a session of its own
folder, names, *sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
try:
    found = runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as stop:
    if stop.code:
        raise
    found = {}
if names:
    import torch

    values = {name: found[name] for name in names.split(",") if name in found}
    torch.save(values, os.path.join(folder, f"rank{os.environ['RANK']}.pt"))

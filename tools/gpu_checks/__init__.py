"""What tools/gpu_check.py runs: one file a check, in `scripts/` what their ranks run."""

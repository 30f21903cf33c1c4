# torchrun --nproc-per-node 2 module-not-found.py
import a_module_that_is_nowhere  # noqa: F401

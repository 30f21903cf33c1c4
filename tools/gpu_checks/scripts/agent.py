"""torchrun, which ends when the check that started it has ended."""

import sys

from die_with_parent import die_with_parent

die_with_parent()

from torch.distributed.run import main  # noqa: E402 - this takes seconds: the line above must not wait for it

main(sys.argv[1:])

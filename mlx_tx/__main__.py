"""``python -m mlx_tx`` is ``mlx-tx``."""

import sys

from .cli import main

sys.exit(main())

"""`python -m rota` is `rota`."""

import sys

from rota.cli.main import main

sys.exit(main())

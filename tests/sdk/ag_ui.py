"""Checks recorded streams of AG-UI with the protocol's validator: ag_ui.py FILE. Fails on errors and warnings."""

import sys

from ag_ui_validate.cli import main

sys.argv += ["--max-warnings", "0"]
sys.exit(main())

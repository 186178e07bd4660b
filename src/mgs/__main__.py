import sys

from mgs.cli.main import main

sys.exit(main())

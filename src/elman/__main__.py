"""`python -m elman` is `elman`, which imports nothing from the current directory either."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # where `-m` puts it
    from elman.cli import main

    main()

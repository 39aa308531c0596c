"""`python -m elman` is `elman`."""

from elman.cli import main

if __name__ == "__main__":
    main()

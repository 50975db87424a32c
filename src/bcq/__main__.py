"""The command `bcq`, also as `python -m bcq`."""

from bcq.cli import main

if __name__ == "__main__":
    main()

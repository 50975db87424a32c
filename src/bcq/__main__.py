"""The command `bcq`, also as `python -m bcq`: Ctrl-C is watched for before anything heavy loads."""

from bcq.system.interruption import watched


def main() -> None:
    """What the `bcq` command does."""
    with watched():
        from bcq.cli import application as cli  # noqa: PLC0415 - JAX and MuJoCo take seconds to import

        cli.main()


if __name__ == "__main__":
    main()

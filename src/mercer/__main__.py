"""The command ``python -m mercer``."""

import sys

_USAGE = "usage: python -m mercer warmup    compile ahead of use, and print what was compiled"


def main(arguments: list[str]) -> int:
    """Run the command; the number is its exit status."""
    if arguments != ["warmup"]:
        print(_USAGE, file=sys.stderr)
        return 2
    from mercer._warmup import warmup

    print("mercer: compiling what is not on disk yet, which may take a minute", file=sys.stderr)
    print(warmup())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

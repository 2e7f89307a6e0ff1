"""The command `witness`, and `python -m witness`."""

import sys

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it; `cli` gives it for later ones."""

try:
    import signal
except KeyboardInterrupt:
    sys.exit(INTERRUPTED)  # without a traceback


def main() -> None:
    """Run the command line and end the process."""
    try:
        # Until it handles Ctrl-C itself, that ends the process at once: importing everything takes a moment.
        if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    try:
        from witness.cli.main import main as command
    except Exception as error:
        from witness.errors import broken_package

        if (message := broken_package(error)) is None:
            raise
        sys.exit(f"witness: {message}")

    command()


if __name__ == "__main__":
    main()

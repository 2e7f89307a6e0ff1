"""The command `witness`, and `python -m witness`."""

import sys

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it; `cli` says it for what comes later."""

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
    from witness.cli.main import main as command

    command()


if __name__ == "__main__":
    main()

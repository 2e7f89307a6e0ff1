"""The command `witness`, and `python -m witness`."""

import signal


def main() -> None:
    """Run the command line and end the process."""
    # Until it handles Ctrl-C itself, that ends the process at once: importing everything takes a moment.
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from witness.cli.main import main as command

    command()


if __name__ == "__main__":
    main()

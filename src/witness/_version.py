"""The version, for everything that must not import the package's front door."""

__version__ = "0.1.0"
DISTRIBUTION = "witness-transcribe"
"""The name on the package index, where `witness` is another program. Command and import are `witness`."""


def install(extra: str) -> str:
    """The command that installs an extra of this package."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"

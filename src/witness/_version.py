"""The version, for everything that must not import the package's front door."""

__version__ = "0.1.0"

"""distrl's version, written once: the package, the images and the chart take it from here."""

__version__ = "0.1.0"

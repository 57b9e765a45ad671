"""The Sphinx extensions of this site, one module each."""

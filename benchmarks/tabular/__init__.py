"""Tables as they come: error, density, coverage and time of mercer without settings, and of its peers.

``python -m benchmarks.tabular`` runs what is not stored yet, and fills the tables of ``docs/tabular.md`` and
``docs/error_bars.md``.
"""

"""Hypothesis profiles: the same cases on every run in CI, new ones on a developer's machine."""

import os

from hypothesis import settings

# The first example of a test may pay for compilation, so there is no deadline.
settings.register_profile("local", deadline=None, max_examples=50)
settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

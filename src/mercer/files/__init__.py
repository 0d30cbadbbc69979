"""Tables in files: read where they are, a batch at a time, and predictions written to files."""

from mercer.files.scan import scan
from mercer.files.writing import write_predictions

__all__ = ["scan", "write_predictions"]

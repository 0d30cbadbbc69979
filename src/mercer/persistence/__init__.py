"""Models outside Python: a safe archive (``save``, ``load``), and predictions as ONNX and C (``to_onnx``, ``to_c``)."""

from mercer.persistence.archive import load, save
from mercer.persistence.c_source import to_c
from mercer.persistence.onnx_graph import to_onnx

__all__ = ["load", "save", "to_c", "to_onnx"]

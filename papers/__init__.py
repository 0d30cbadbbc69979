"""Experiments of published papers, run again: one module each, with what was printed beside what comes out."""

"""Samples -> who speaks when.

segmentation ─ embedding ─ clustering ─ reconstruction
"""

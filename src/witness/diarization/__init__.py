"""Samples -> who speaks when.

    segmentation ─ embedding ─ clustering ─ reconstruction

`stream` runs the first two at the same time; `voices` compares speakers with known people.
"""

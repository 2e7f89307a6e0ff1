"""A recording -> samples at 16 kHz, in a file that may be larger than memory; and the sound of a page.

source ─ ffmpeg ─ mixing ─ resampling (decode) ─ spool
"""

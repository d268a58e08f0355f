"""Follows a program to its end with its loops shortened.

A training loop whose memory has settled ends early, so that what comes after it happens: the evaluation, the saving,
the second epoch, the test at the end. `rewrite` makes the user's loops report their iterations, `libraries` does the same
for the loops of trainers, `progress` decides when a loop has shown what it does, and `course` ends it.
"""

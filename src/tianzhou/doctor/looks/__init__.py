"""Observers, which read servers through `Admin` and this machine.

The result is partial when a server does not answer.
"""

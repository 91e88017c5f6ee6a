"""Tests of the name server share its desk."""

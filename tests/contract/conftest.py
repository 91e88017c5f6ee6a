"""The contract suites share fixtures and checks that are no tests."""

"""The benchmark; README.md says how."""

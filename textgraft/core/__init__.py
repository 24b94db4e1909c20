"""Foundations of the package: errors, files, interrupts, memory, progress, devices."""

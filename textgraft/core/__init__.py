"""What every part of the package uses: errors, files, interrupts, memory, progress, devices."""

"""Task heads, one file each."""

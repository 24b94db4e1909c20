"""Models of an encoder and a head, the artifact folder, and the loader."""

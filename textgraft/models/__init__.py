"""An encoder and a head as one model; the artifact folder; the loader."""

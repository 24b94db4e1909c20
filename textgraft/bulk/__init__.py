"""Bulk work: folders of files in, a folder of files out, resumable, in one process or on a cluster."""

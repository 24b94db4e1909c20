"""What tests ask of the processor that they run on."""

from __future__ import annotations

import os

import pytest

from textgraft.nn.cpu.int8 import int8_is_native

# Under ONEDNN_MAX_CPU_ISA, which stands in for an older processor, oneDNN sums up eight bits without VNNI, which
# overflows, while the processor still says that it has VNNI.
native_int8 = pytest.mark.skipif(
    not int8_is_native() or "ONEDNN_MAX_CPU_ISA" in os.environ, reason="no VNNI here, or oneDNN is told not to use it"
)

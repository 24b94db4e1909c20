"""The rows of `make bench`, a module each: ROW, `prepare(given)` -> the task, and `peer(task)`, `ours(task)` -> a turn.

A turn takes the round's number and does the work once (race.Turn). A module's head imports nothing that one side's
environment may lack.
"""

ROWS = (
    "finetune",
    "predict",
    "predict_vnni",
    "predict_int8",
    "latency",
    "latency_vnni",
    "language_model",
    "tagging",
    "tagging_vnni",
    "generate",
    "vectors",
    "encode",
    "few_labels",
    "cold",
)

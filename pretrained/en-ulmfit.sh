#!/bin/sh
# How pretrained/en-ulmfit is made: sh pretrained/en-ulmfit.sh ENWIKI_FOLDER NOVELS.txt.xz OUT, two hours on two cores.
#
# ENWIKI_FOLDER holds train-*.jsonl.xz and valid.jsonl.xz, an article a line; the novels come a paragraph a line and are
# read in stretches of a hundred, so that the model learns to look further back than one paragraph.
set -e
python - "$2" > novels.jsonl <<'END'
import itertools, json, lzma, sys

with lzma.open(sys.argv[1], "rt", encoding="utf-8") as lines:
    while stretch := list(itertools.islice(lines, 100)):
        print(json.dumps({"text": "".join(stretch)}))
END
textgraft pretrain "$1"/train-*.jsonl.xz novels.jsonl --valid "$1/valid.jsonl.xz" --recipe en-ulmfit --out "$3"

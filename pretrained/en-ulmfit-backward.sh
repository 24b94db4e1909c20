#!/bin/sh
# How pretrained/en-ulmfit-backward is made: sh pretrained/en-ulmfit-backward.sh ENWIKI_FOLDER NOVELS.txt.xz OUT, two hours
# and a half on one core. The same texts and the same tokenizer as en-ulmfit, read from right to left.
set -e
python - "$2" > novels.jsonl <<'PYTHON'
import itertools, json, lzma, sys

with lzma.open(sys.argv[1], "rt", encoding="utf-8") as lines:
    while stretch := list(itertools.islice(lines, 100)):
        print(json.dumps({"text": "".join(stretch)}))
PYTHON
textgraft pretrain "$1"/train-*.jsonl.xz novels.jsonl --valid "$1/valid.jsonl.xz" --recipe en-ulmfit-backward \
    --tokenizer "$(dirname "$0")/en-ulmfit/tokenizer.json" --out "$3"

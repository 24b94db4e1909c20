#!/bin/sh
# How the English models are made: sh pretrained/make.sh NAME ENWIKI_FOLDER NOVELS.txt.xz OUT [OPTIONS of textgraft pretrain],
# one to three hours on a core, or eight minutes of a large GPU for a recipe whose name ends in -gpu: en-ulmfit-gpu,
# en-ulmfit-backward-gpu and en-gpt-small-gpu were read at once on one, which had room for all three (NVIDIA's MPS).
# NAME is the recipe's, as in en-ulmfit; en-vectors, twenty minutes, has none.
#
# ENWIKI_FOLDER holds train-*.jsonl.xz and valid.jsonl.xz, an article a line; the novels come a paragraph a line and are
# read in stretches of a hundred, so that the model learns to look further back than one paragraph.
set -e
name=$1 enwiki=$2 novels=$3 out=$4
shift 4
# Both directions share their tokens, and all keep those that were trained on these texts for the first that shipped.
case "$name" in
    en-ulmfit*) set -- --tokenizer "$(dirname "$0")/en-ulmfit/tokenizer.json" "$@" ;;
    en-gpt-small-gpu) set -- --tokenizer "$(dirname "$0")/en-gpt-small/tokenizer.json" "$@" ;;
esac
python - "$novels" > novels.jsonl <<'END'
import itertools, json, lzma, sys

with lzma.open(sys.argv[1], "rt", encoding="utf-8") as lines:
    while stretch := list(itertools.islice(lines, 100)):
        print(json.dumps({"text": "".join(stretch)}))
END
if [ "$name" = en-vectors ]; then
    exec textgraft vectors train "$enwiki"/train-*.jsonl.xz novels.jsonl --vocabulary 50000 --epochs 3 --half --language en --out "$out" "$@"
fi
textgraft pretrain "$enwiki"/train-*.jsonl.xz novels.jsonl --valid "$enwiki/valid.jsonl.xz" --recipe "$name" --out "$out" "$@"

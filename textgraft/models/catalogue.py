"""Published models worth knowing, each with a short name that is understood wherever a model is named.

Facts are those of the model cards; a licence is empty where the card states none. Sizes are of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from textgraft.core.lazy import resolve
from textgraft.models import hub_cache

TASKS = ("classification", "tagging", "qa", "embedding", "generation")
"""What a model can be for: `tasks` of each entry."""
ANY_LABELLED = ("classification", "tagging", "qa")
SENTENCES = ("classification", "embedding")
CAUSAL = ("classification", "embedding", "generation")


def _codes(text: str) -> tuple[str, ...]:
    return tuple(text.split())


EN, TH = ("en",), ("th",)
XLM_R = _codes(
    "af am ar as az be bg bn br bs ca cs cy da de el en eo es et eu fa fi fr fy ga gd gl gu ha he hi hr hu hy id is it "
    "ja jv ka kk km kn ko ku ky la lo lt lv mg mk ml mn mr ms my ne nl no om or pa pl ps pt ro ru sa sd si sk sl so sq "
    "sr su sv sw ta te th tl tr ug uk ur uz vi xh yi zh"
)
PARAPHRASES = _codes(
    "ar bg ca cs da de el en es et fa fi fr gl gu he hi hr hu hy id it ja ka ko ku lt lv mk mn mr ms my nb nl pl pt ro "
    "ru sk sl sq sr sv th tr uk ur vi zh"
)
MBERT = _codes(
    "af an ar ast az ba bar be bg bn bpy br bs ca ce ceb cs cv cy da de el en es et eu fa fi fr fy ga gl gu he hi hr "
    "ht hu hy id io is it ja jv ka kk kn ko ky la lb lmo lt lv mg min mk ml mn mr ms my nb nds ne new nl nn oc pa pl "
    "pms pnb pt ro ru scn sco sk sl sq sr su sv sw ta te tg th tl tr tt uk ur uz vi vo war yo zh"
)
QWEN = _codes("ar de en es fr it ja ko pt ru th vi zh")


@dataclass(frozen=True)
class KnownModel:
    """A published model.

    Attributes:
        name: Its short name.
        hub: OWNER/MODEL on huggingface.co.
        model_type: As in its config.json.
        parameters: In millions.
        megabytes: Size of its weights; None where unknown.
        languages: ISO 639 codes.
        licence: As its card states it; empty where it does not.
        tasks: Some of TASKS.
        suits: What it is good for, in a few words.
        package: "module:function" that returns the folder of the model in an installed package, or None.
        extra: The extra of textgraft that installs that package.
    """

    name: str
    hub: str
    model_type: str
    parameters: int
    megabytes: int | None
    languages: tuple[str, ...]
    licence: str
    tasks: tuple[str, ...]
    suits: str
    package: str = ""
    extra: str = ""


APACHE, MIT = "Apache-2.0", "MIT"
CATALOGUE = (
    KnownModel(
        "minilm",
        "sentence-transformers/all-MiniLM-L6-v2",
        "bert",
        23,
        91,
        EN,
        APACHE,
        SENTENCES,
        "few labels; fastest",
        package="textgraft.models.packaged:minilm",
        extra="minilm",
    ),
    KnownModel(
        "minilm-l12",
        "sentence-transformers/all-MiniLM-L12-v2",
        "bert",
        33,
        133,
        EN,
        APACHE,
        SENTENCES,
        "few labels",
    ),
    KnownModel(
        "mpnet",
        "sentence-transformers/all-mpnet-base-v2",
        "mpnet",
        109,
        438,
        EN,
        APACHE,
        SENTENCES,
        "few labels; strongest",
    ),
    KnownModel(
        "multilingual-minilm",
        "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
        "bert",
        118,
        471,
        PARAPHRASES,
        APACHE,
        SENTENCES,
        "few labels",
    ),
    KnownModel("bge-small", "BAAI/bge-small-en-v1.5", "bert", 33, 133, EN, MIT, SENTENCES, "few labels, search"),
    KnownModel("bge-base", "BAAI/bge-base-en-v1.5", "bert", 109, 438, EN, MIT, SENTENCES, "few labels, search"),
    KnownModel("e5-small", "intfloat/e5-small-v2", "bert", 33, 133, EN, MIT, SENTENCES, "few labels, search"),
    KnownModel("e5-base", "intfloat/e5-base-v2", "bert", 109, 438, EN, MIT, SENTENCES, "few labels, search"),
    KnownModel(
        "multilingual-e5-small",
        "intfloat/multilingual-e5-small",
        "bert",
        118,
        471,
        XLM_R,
        MIT,
        SENTENCES,
        "few labels, search",
    ),
    KnownModel(
        "multilingual-e5-base",
        "intfloat/multilingual-e5-base",
        "xlm-roberta",
        278,
        1112,
        XLM_R,
        MIT,
        SENTENCES,
        "few labels, search",
    ),
    KnownModel("gte-small", "thenlper/gte-small", "bert", 33, 67, EN, MIT, SENTENCES, "few labels, search"),
    KnownModel("gte-base", "thenlper/gte-base", "bert", 109, 219, EN, MIT, SENTENCES, "few labels, search"),
    KnownModel(
        "arctic-xs", "Snowflake/snowflake-arctic-embed-xs", "bert", 22, 90, EN, APACHE, SENTENCES, "search; small"
    ),
    KnownModel("arctic-s", "Snowflake/snowflake-arctic-embed-s", "bert", 33, 133, EN, APACHE, SENTENCES, "search"),
    KnownModel("roberta", "FacebookAI/roberta-base", "roberta", 125, 499, EN, MIT, ANY_LABELLED, "hundreds of labels"),
    KnownModel(
        "distilroberta",
        "distilbert/distilroberta-base",
        "roberta",
        82,
        331,
        EN,
        APACHE,
        ANY_LABELLED,
        "hundreds of labels",
    ),
    KnownModel(
        "xlm-roberta",
        "FacebookAI/xlm-roberta-base",
        "xlm-roberta",
        278,
        1116,
        XLM_R,
        MIT,
        ANY_LABELLED,
        "hundreds of labels",
    ),
    KnownModel(
        "wangchanberta",
        "airesearch/wangchanberta-base-att-spm-uncased",
        "camembert",
        105,
        None,
        TH,
        "",
        ANY_LABELLED,
        "hundreds of labels",
    ),
    KnownModel(
        "mbert",
        "google-bert/bert-base-multilingual-cased",
        "bert",
        178,
        714,
        MBERT,
        APACHE,
        ANY_LABELLED,
        "hundreds of labels",
    ),
    KnownModel(
        "deberta-v3-small",
        "microsoft/deberta-v3-small",
        "deberta-v2",
        142,
        286,
        EN,
        MIT,
        ANY_LABELLED,
        "hundreds of labels",
    ),
    KnownModel(
        "deberta-v3-base",
        "microsoft/deberta-v3-base",
        "deberta-v2",
        184,
        371,
        EN,
        MIT,
        ANY_LABELLED,
        "thousands of labels",
    ),
    KnownModel(
        "modernbert",
        "answerdotai/ModernBERT-base",
        "modernbert",
        149,
        599,
        EN,
        APACHE,
        ANY_LABELLED,
        "long texts, code",
    ),
    KnownModel(
        "twitter-roberta",
        "cardiffnlp/twitter-roberta-base",
        "roberta",
        125,
        501,
        EN,
        "",
        ANY_LABELLED,
        "posts, informal text",
    ),
    KnownModel("biobert", "dmis-lab/biobert-v1.1", "bert", 108, None, EN, "", ANY_LABELLED, "biomedical text"),
    KnownModel(
        "scibert", "allenai/scibert_scivocab_uncased", "bert", 110, 442, EN, "", ANY_LABELLED, "scientific papers"
    ),
    KnownModel("finbert", "ProsusAI/finbert", "bert", 109, 438, EN, "", ANY_LABELLED, "financial news"),
    KnownModel("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B", "qwen2", 494, 988, QWEN, APACHE, CAUSAL, "prompts, generation"),
    KnownModel("qwen3-0.6b", "Qwen/Qwen3-0.6B", "qwen3", 596, 1503, QWEN, APACHE, CAUSAL, "prompts, generation"),
    KnownModel("smollm2-135m", "HuggingFaceTB/SmolLM2-135M", "llama", 135, 269, EN, APACHE, CAUSAL, "prompts; small"),
    KnownModel(
        "smollm2-360m", "HuggingFaceTB/SmolLM2-360M", "llama", 362, 724, EN, APACHE, CAUSAL, "prompts, generation"
    ),
)
"""The published models that `textgraft models` lists."""


def find(name: str) -> KnownModel | None:
    """The entry of a short name, of OWNER/MODEL or of MODEL alone, in any case of letters; None if there is none."""
    wanted = name.lower()
    for entry in CATALOGUE:
        hub = entry.hub.lower()
        if wanted in (entry.name, hub, hub.partition("/")[2]):
            return entry
    return None


def in_package(entry: KnownModel) -> Path | None:
    """The folder of a model in an installed package; None where there is none."""
    folder: Path | None = resolve(entry.package)() if entry.package else None
    return folder


def in_cache(entry: KnownModel) -> Path | None:
    """The folder of a model in the user's Hugging Face cache, if it is complete there."""
    folder = hub_cache.snapshot(entry.hub)
    return folder if folder is not None and not hub_cache.missing_file(folder) else None


def fetch_command(entry: KnownModel) -> str:
    """The command that gets a model."""
    return f"textgraft fetch {entry.name}"

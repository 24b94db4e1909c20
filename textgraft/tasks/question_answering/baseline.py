"""What one would try first: of a paragraph, the sentence that reads most like the question."""

from __future__ import annotations

from collections.abc import Sequence

from textgraft.data.squad import Question
from textgraft.text.sentences import sentence_spans

NAME = "sentence"
ABOUT = "The sentence of the context that is nearest to the question, by TF-IDF of character 3- and 4-grams."


def nearest_sentences(asked: Sequence[tuple[str, Question]], *, train: Sequence[str] = ()) -> dict[str, str]:
    """{id: the nearest sentence of the context}; "" for an empty one. Weights of n-grams are learned from all contexts.

    The weights need no answers, so the contexts asked about and those of `train` count alike.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    contexts = list(dict.fromkeys([*train, *(context for context, _ in asked)]))
    spans = {context: sentence_spans(context) for context in dict.fromkeys(context for context, _ in asked)}
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4), sublinear_tf=True)
    try:
        vectorizer.fit(contexts)
    except ValueError:  # not one n-gram in all of them
        return {question.id: context.strip() for context, question in asked}
    vectors = {c: vectorizer.transform([c[a:b] for a, b in found]) for c, found in spans.items() if found}
    questions = vectorizer.transform([question.text for _, question in asked])
    answers: dict[str, str] = {}
    for row, (context, question) in enumerate(asked):
        if not spans[context]:
            answers[question.id] = ""
            continue
        likeness = (vectors[context] @ questions[row].T).toarray().ravel()
        start, end = spans[context][int(likeness.argmax())]
        answers[question.id] = context[start:end]
    return answers

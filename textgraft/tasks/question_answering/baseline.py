"""Baseline for extractive question answering: the sentence of the context that is most similar to the question."""

from __future__ import annotations

from collections.abc import Sequence

from textgraft.data.squad import Question
from textgraft.text.sentences import sentence_spans

NAME = "sentence"
ABOUT = "The sentence of the context that is nearest to the question, by TF-IDF of character 3- and 4-grams."


def nearest_sentences(questions: Sequence[tuple[str, Question]], *, train: Sequence[str] = ()) -> dict[str, str]:
    """Predict for each question the sentence of its context with the highest TF-IDF similarity.

    Args:
        questions: (context, question) pairs.
        train: Further contexts. IDF weights need no answers, so they are fitted on these and the contexts of
            `questions` together.

    Returns:
        {question id: sentence}; "" for a context without a sentence.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    contexts = list(dict.fromkeys([*train, *(context for context, _ in questions)]))
    spans = {context: sentence_spans(context) for context in dict.fromkeys(context for context, _ in questions)}
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4), sublinear_tf=True)
    try:
        vectorizer.fit(contexts)
    except ValueError:  # the contexts have no n-gram at all
        return {question.id: context.strip() for context, question in questions}
    vectors = {c: vectorizer.transform([c[a:b] for a, b in sentences]) for c, sentences in spans.items() if sentences}
    question_vectors = vectorizer.transform([question.text for _, question in questions])
    answers: dict[str, str] = {}
    for row, (context, question) in enumerate(questions):
        if not spans[context]:
            answers[question.id] = ""
            continue
        similarity = (vectors[context] @ question_vectors[row].T).toarray().ravel()
        start, end = spans[context][int(similarity.argmax())]
        answers[question.id] = context[start:end]
    return answers

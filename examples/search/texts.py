"""Search the documentation of this package: print the paragraphs that are most similar to a question.

pip install wordllama
python texts.py "which neighbors are returned on ties?"
"""

import sys

from embedder import load_model, paragraphs

from dmlcpu.search import FloatIndex

QUESTIONS = [
    "which index comes first if elements are equal?",
    "how do I run many files and resume after a failure?",
    "which environment variable sets the number of threads?",
]


def main(questions):
    embed, pages = load_model(), paragraphs()
    index = FloatIndex(embed([text for _, text in pages]), metric="cosine")
    scores, found, report = index.search(embed(questions), 3, report=True)
    print(f"{index}; scored for a question: {report.scored.mean():.0f}")
    for question, row, places in zip(questions, scores, found, strict=True):
        print(f"\n{question}")
        for score, place in zip(row, places, strict=True):
            page, text = pages[place]
            print(f"  {score:.2f} {page}: {text[:100]}")


if __name__ == "__main__":
    main(sys.argv[1:] or QUESTIONS)

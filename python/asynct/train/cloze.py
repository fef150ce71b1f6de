"""Questions made from encyclopedia pages by rule, in the `Question: ...\\nAnswer: ...` form of ARC.

A page is its title, a blank line, then paragraphs. Three forms: what is TITLE; which TITLE is meant by its
definition; a sentence cut where a phrase begins. The model learns that what follows `Answer:` is content, not a
restart; facts are those of the page.
"""

import random
import re

_SENTENCE = re.compile(r"(?<=[a-z)][.!?]) +(?=[A-Z])")
_CUT = re.compile(
    r" (is|are|was|were|because|by|to|into|called|causes?|from|of|when|that|produces?|contains?|between|through|with|for|in) "
)


def _definition(title: str, sentence: str):
    match = re.search(r"\b(is|are) ((?:a|an|the|any|one) .{15,160}?)[.;]", sentence + ".")
    if not match or title.lower().split(" (")[0] not in sentence[: match.start()].lower():
        return None
    return match.group(1), match.group(2)


def _cut(rng, sentence: str):
    words = sentence.count(" ") + 1
    if not 7 <= words <= 32 or "\n" in sentence:
        return None
    places = [m for m in _CUT.finditer(sentence) if 18 <= m.end() <= len(sentence) - 5]
    if not places:
        return None
    place = rng.choice(places[len(places) // 3 :])
    return sentence[: place.end() - 1], sentence[place.end() :].rstrip(".")


def questions(page: str, seed: int, share: float = 0.35) -> list:
    """Question documents of one page, a random `share` of its sentences."""
    rng = random.Random(seed)
    title, _, body = page.partition("\n\n")
    title = title.strip().split(" (")[0]
    out = []
    sentences = [s.strip() for paragraph in body.split("\n") for s in _SENTENCE.split(paragraph)]
    definition = _definition(title, sentences[0]) if sentences else None
    if definition:
        verb, text = definition
        out.append(f"Question: What {verb} {title.lower()}?\nAnswer: {text}")
        out.append(f"Question: Which of these {verb} {text}?\nAnswer: {title.lower()}")
    for sentence in sentences:
        pair = _cut(rng, sentence) if rng.random() < share else None
        if pair:
            out.append(f"Question: {pair[0]}\nAnswer: {pair[1]}")
    return out

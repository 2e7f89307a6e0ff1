"""A transcript without the sounds of somebody who looks for words: um, uh, ähm, euh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from witness.schema import CLOSING, SENTENCE_ENDS, Transcript, Utterance, Word

FILLERS = {
    language: frozenset(words.split())
    for language, words in {
        "en": "um umm uhm uh uhh er erm hmm hm mm",
        "de": "äh ähm ähem öh öhm hm hmm",
        "fr": "euh heu hum hm",
        "es": "eh em ehm mm",
        "it": "ehm eh uhm mm",
        "nl": "eh ehm uh uhm hm",
        "pt": "hum hã ahn é-é",
        "sv": "öh öhm eh hm",
        "da": "øh øhm hm",
        "no": "eh øh ehm hm",
        "pl": "yyy eee hm",
        "fi": "öö ööh hmm",
    }.items()
}
"""By language, since a word of one is a filler of another: "um" and "er" are words in German."""
PUNCTUATION = ".,;:!?…-–— "


def dropped(transcript: Transcript) -> Transcript:
    """The same without fillers in its utterances; an utterance of nothing else is left out."""
    kept = []
    for utterance in transcript.utterances:
        known = FILLERS.get(utterance.language or transcript.language or "", frozenset())
        words = _without(utterance.words, known)
        if words or not utterance.words:
            kept.append(_with(utterance, words))
    return replace(transcript, utterances=tuple(kept))


def _with(utterance: Utterance, words: Sequence[Word]) -> Utterance:
    if len(words) == len(utterance.words):
        return utterance
    return replace(utterance, words=tuple(words), start=words[0].start, end=words[-1].end)


def _without(words: Sequence[Word], known: frozenset[str]) -> list[Word]:
    """The words that are no fillers. The end of a sentence and a capital letter go to the neighbors."""
    found: list[Word] = []
    capital = False
    for word in words:
        bare = word.text.strip(PUNCTUATION)
        if not word.corrected and bare.casefold() in known:
            capital = capital or (bare[:1].isupper() and (not found or _ends(found[-1])))
            if _ends(word) and found and not _ends(found[-1]):
                end = word.text.rstrip(CLOSING)[-1]
                found[-1] = structs.replace(found[-1], text=found[-1].text.rstrip(",;:–—- ") + end)
            continue
        if capital:
            text = word.text
            place = len(text) - len(text.lstrip())
            text = text[:place] + text[place : place + 1].upper() + text[place + 1 :]
            word = structs.replace(word, text=text)
            capital = False
        found.append(word)
    return found


def _ends(word: Word) -> bool:
    return word.text.rstrip(CLOSING).endswith(tuple(SENTENCE_ENDS))

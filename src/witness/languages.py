"""Codes and names of the languages that Whisper knows, apart from the engines, so that a check needs none."""

from __future__ import annotations

from witness.errors import UsageError
from witness.text import suggest

_TABLE = """
en=english zh=chinese de=german es=spanish ru=russian ko=korean fr=french ja=japanese pt=portuguese tr=turkish
pl=polish ca=catalan nl=dutch ar=arabic sv=swedish it=italian id=indonesian hi=hindi fi=finnish vi=vietnamese
he=hebrew uk=ukrainian el=greek ms=malay cs=czech ro=romanian da=danish hu=hungarian ta=tamil no=norwegian
th=thai ur=urdu hr=croatian bg=bulgarian lt=lithuanian la=latin mi=maori ml=malayalam cy=welsh sk=slovak
te=telugu fa=persian lv=latvian bn=bengali sr=serbian az=azerbaijani sl=slovenian kn=kannada et=estonian
mk=macedonian br=breton eu=basque is=icelandic hy=armenian ne=nepali mn=mongolian bs=bosnian kk=kazakh
sq=albanian sw=swahili gl=galician mr=marathi pa=punjabi si=sinhala km=khmer sn=shona yo=yoruba so=somali
af=afrikaans oc=occitan ka=georgian be=belarusian tg=tajik sd=sindhi gu=gujarati am=amharic yi=yiddish lo=lao
uz=uzbek fo=faroese ht=haitian_creole ps=pashto tk=turkmen nn=nynorsk mt=maltese sa=sanskrit lb=luxembourgish
my=myanmar bo=tibetan tl=tagalog mg=malagasy as=assamese tt=tatar haw=hawaiian ln=lingala ha=hausa ba=bashkir
jw=javanese su=sundanese yue=cantonese
"""
NAMES = {code: name.replace("_", " ") for code, _, name in (pair.partition("=") for pair in _TABLE.split())}
"""Code -> name of the languages that Whisper knows, in its order."""
LANGUAGES = tuple(NAMES)
RIGHT_TO_LEFT = frozenset({"ar", "fa", "he", "ps", "sd", "ur", "yi"})
"""Languages that are written from right to left."""
MULTI = "multi"
"""Pseudo-code for a recording in several languages: the engine detects them every ten seconds."""
_OTHERS = """
burmese=my valencian=ca flemish=nl haitian=ht letzeburgesch=lb pushto=ps panjabi=pa moldavian=ro moldovan=ro
sinhalese=si castilian=es mandarin=zh cmn=zh filipino=tl fil=tl nb=no iw=he jv=jw
"""
"""Other names of some (openai/whisper, tokenizer.py), and ISO 639 codes that differ from Whisper's."""
_CODES = {name: code for code, name in NAMES.items()} | dict(pair.split("=") for pair in _OTHERS.split())


def parse(text: str) -> str:
    """Turn comma-separated codes or names into codes: "German, en" becomes "de,en".

    Raises UsageError if Whisper knows no such language. Needs no model.
    """
    words = [" ".join(word.casefold().split()) for word in text.split(",")]
    codes = [_CODES.get(word, word) for word in words]
    for code, entry in zip(codes, text.split(","), strict=True):
        if code not in (*LANGUAGES, MULTI) or (code == MULTI and len(codes) > 1):
            examples = ", ".join(LANGUAGES[:6])
            hint = suggest(code[:40], _CODES)
            raise UsageError(
                f"whisper does not know the language {entry.strip()[:40]!r}{hint or ';'} give codes "
                f"({examples}, ...) or names (english, ...), several with commas between them, or {MULTI}"
            )
    return ",".join(dict.fromkeys(codes))


def name(code: str) -> str:
    """Return the English name of a language: "French"."""
    return NAMES.get(code, code).title()

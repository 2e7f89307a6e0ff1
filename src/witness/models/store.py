"""The chosen models: names and folders -> verified files on this disk."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from witness.errors import ModelError, UsageError
from witness.models import catalogue, on_disk, recognizers, user_files
from witness.models.catalogue import CatalogueFile
from witness.models.download import FetchError
from witness.models.on_disk import OnDisk as OnDisk
from witness.options import Options, Recognizer
from witness.progress import SILENT, LongNote, Reporter
from witness.schema import ModelFile, Rule
from witness.storage import files, typed_json
from witness.text import suggest


@dataclass(frozen=True)
class DiarizationModels:
    """A segmentation and an embedding model, and the clustering for the two."""

    name: str
    """The name of the set, or of the folder."""
    segmentation: ModelFile
    embedding: ModelFile
    rule: Rule
    plda: Mapping[str, ModelFile] = field(default_factory=dict)
    """Array -> file, as `vbx.read` takes them; empty for a clustering without PLDA."""


# --- speaker models ---


def diarization_models(choice: str, *, offline: bool, reporter: Reporter = SILENT) -> DiarizationModels:
    """Return the chosen models, verified. A note says so if "auto" takes another set than standard.

    `choice` is a name of `catalogue.SETS`, "auto" (standard if it is cached or can be fetched, else campplus,
    else builtin), or a folder with segmentation.onnx and embedding.onnx and, unless it is the standard set's,
    with clustering.json: the fields of `schema.Rule`, with "linkage" and "threshold".
    `offline` opens no socket.

    Raises:
        ModelError: a file is damaged, or was asked for by name and cannot be fetched (`FetchError`).
        UsageError: `choice` is something else.
    """
    if not choice:
        raise UsageError(f"--models is empty; give a folder, auto, {_set_names()}")
    if choice not in ("auto", *catalogue.SETS):
        return _from_folder(choice, reporter)
    if choice == "auto":
        name, models = _best(offline, reporter)
    else:
        name, models = choice, _obtained_set(choice, offline, reporter)
    segmentation, embedding, *plda = models
    arrays = {file.name.removeprefix("plda-"): file for file in plda}
    return DiarizationModels(name, segmentation, embedding, catalogue.SETS[name].rule, arrays)


def _best(offline: bool, reporter: Reporter) -> tuple[str, list[ModelFile]]:
    """Return the set of "auto", and its files. A note says so unless it is the standard set."""
    usual, last, others = catalogue.AUTO[0], catalogue.AUTO[-1], catalogue.AUTO[1:-1]
    try:
        return usual, _obtained_set(usual, offline, reporter)
    except FetchError as error:
        missing = error
    try:
        if others:
            return others[0], _instead(others[0], missing, offline, reporter)
    except FetchError as error:
        missing = error
    short = f"using the {last} speaker models, less accurate than the {usual} ones"
    reporter.note(_about_this_machine(short, str(missing)))
    return last, _obtained_set(last, True, reporter)


def _instead(name: str, missing: FetchError, offline: bool, reporter: Reporter) -> list[ModelFile]:
    """Return a set that does not need the Hub; a note says so, and names the missing set.

    Raises FetchError with the reasons why both are missing.
    """
    entries = _entries(catalogue.SETS[name].files)
    try:
        models = on_disk.obtain(entries, offline=offline, reporter=reporter, hub=False)
    except FetchError as error:
        if on_disk.is_offline(offline):
            raise missing from None
        raise FetchError(f"{missing}; nor {name}: {error}") from error
    origins: dict[str, list[str]] = {}
    for file in (on_disk.inspect(entry, verify=False).file for entry in entries):
        origins.setdefault(file.source, []).append(file.name)
    sources = ", ".join(f"{' and '.join(files)} from {source}" for source, files in origins.items())
    reporter.note(_about_this_machine(f"using the speaker models {name}", str(missing), f" ({sources})"))
    return models


def _about_this_machine(short: str, why: str, more: str = "") -> LongNote:
    return LongNote(f"{short}{more}: {why}", f"{short}; `witness doctor` says more")


def _obtained_set(name: str, offline: bool, reporter: Reporter) -> list[ModelFile]:
    return on_disk.obtain(_entries(catalogue.SETS[name].files), offline=offline, reporter=reporter)


def _set_names() -> str:
    *names, last = catalogue.SETS
    return f"{', '.join(names)} or {last}"


def recognizer_model(
    options: Options, *, gpu: str | None, available: Collection[str], reporter: Reporter = SILENT
) -> ModelFile | None:
    """Return the speech recognition model that the options choose, verified; None: there will be no words.

    `Options.whisper` is "none", a name of the catalogue, a size (the recognizer's model of that size), a ggml
    file, a folder in CTranslate2's or onnx-asr's format, or "auto": the recognizer's default; if that is
    missing and cannot be fetched, another model on this disk, or None, with a note. `available` are the
    recognizers that can run here; `gpu` can use a GPU.

    Raises:
        ModelError: a file is damaged or of another kind, or was asked for by name and cannot be fetched
            (`FetchError`).
        UsageError: a missing recognizer or model, or two that do not fit together.
    """
    choice, recognizer = options.whisper, Recognizer(options.recognizer)
    if choice == "none":
        return None
    able: Collection[str]
    if recognizer == Recognizer.AUTO:
        able, usual = available, recognizers.choose_recognizer(gpu, available)
    else:
        recognizers.require(recognizer, available, "--recognizer")
        able, usual = (recognizer,), recognizer
    if choice == "auto":
        model = _usual_model(usual, able, gpu, options, reporter)
    else:
        model = _named_model(usual, available, options, reporter)
    if model is None or model.engine != recognizers.format_of(usual) or usual != Recognizer.TRANSCRIBE_CPP:
        return model
    return replace(model, engine=usual, aligner=_aligner(model, options, reporter).path)


def _usual_model(
    usual: Recognizer, able: Collection[str], gpu: str | None, options: Options, reporter: Reporter
) -> ModelFile | None:
    name = catalogue.default_whisper(usual, gpu=usual == gpu)
    if name is None:
        raise UsageError(f"no model for {usual} is known; give a folder with --whisper FOLDER")
    (entry,) = _entries([name])
    try:
        return _obtained(entry, options, reporter)
    except FetchError as error:
        return _substitute(entry, error, able, options, reporter)


def _named_model(
    usual: Recognizer, available: Collection[str], options: Options, reporter: Reporter
) -> ModelFile:
    choice, recognizer = options.whisper, options.recognizer
    model = _find_named(choice, usual, available) or user_files.read_recognizer(Path(choice))
    engine = Recognizer(model.engine)
    if engine == recognizers.format_of(usual):
        engine = usual
    if recognizer not in (Recognizer.AUTO, engine):
        raise UsageError(
            f"{model.name} is a model for {engine}, not for {recognizer}; leave out --recognizer, "
            "or change --whisper"
        )
    recognizers.require(engine, available, model.name)
    return model if isinstance(model, ModelFile) else _obtained(model, options, reporter)


def _aligner(model: ModelFile, options: Options, reporter: Reporter) -> ModelFile:
    """Return the model that times a recognizer's words: the usual one, or else the nearest on this disk.

    Raises FetchError.
    """
    (usual,) = _entries([catalogue.ALIGNER])
    try:
        return _obtained(usual, options, reporter)
    except FetchError as error:
        nearest = _nearest(usual, [Recognizer.CTRANSLATE2])
        if nearest is None:
            raise
        if nearest.english_only and options.language != "en" and not user_files.english_only(model):
            raise FetchError(f"{error}; or, if it is in English: --language en") from error
    return on_disk.verified(nearest)


def _obtained(entry: CatalogueFile, options: Options, reporter: Reporter) -> ModelFile:
    if (twin := _on_disk(entry)) not in (None, entry):
        return on_disk.verified(twin)
    return on_disk.obtain([entry], offline=options.offline, reporter=reporter)[0]


def _on_disk(entry: CatalogueFile) -> CatalogueFile | None:
    twin = catalogue.find_twin(entry)
    return next((model for model in (entry, twin) if model and on_disk.locate(model)), None)


def _find_named(choice: str, usual: str, available: Collection[str]) -> CatalogueFile | None:
    """Return the model of this size for the usual recognizer, or of this name, or another recognizer's.

    None: a path. Raises UsageError for anything else.
    """
    sizes = {engine: catalogue.find_by_size(choice, engine) for engine in recognizers.MODULES}
    named = [entry for entry in catalogue.TABLE if entry.role == "whisper" and entry.name == choice]
    able = [sizes[engine] for engine in sizes if engine in available]
    matches = (sizes.get(Recognizer(usual)), *named, *able, *sizes.values())
    entry = next(filter(None, matches), None)
    if entry is None and not user_files.is_path(choice):
        names = [entry.name for entry in catalogue.TABLE if entry.role == "whisper"]
        hint = suggest(choice, [name.removeprefix(catalogue.PREFIX) for name in names])
        raise UsageError(
            f"no whisper model {choice!r}{hint or ';'} give a file, a folder, auto, none or one of "
            f"{', '.join(names)}"
        )
    return entry


def _substitute(
    usual: CatalogueFile, error: FetchError, able: Collection[str], options: Options, reporter: Reporter
) -> ModelFile | None:
    """Return another model on this disk for the recognizers `able`; a note says so.

    An English-only model is no substitute: it turns every other language into English nonsense. But one from
    an installed package is better than no words, unless another language was asked for.
    """
    model = _nearest(usual, able)
    if model is None or (model.english_only and (options.language not in (None, "en") or options.translate)):
        but = f" ({model.name} knows English only)" if model else ""
        short = f"no words, only speakers and turns{but}"
        reporter.note(_about_this_machine(short, f"{error}; or give a model with --whisper FILE"))
        return None
    reporter.note(_about_this_machine(f"recognizing words with {_compared(model, usual)}", str(error)))
    return on_disk.verified(model)


def _nearest(usual: CatalogueFile, able: Collection[str]) -> CatalogueFile | None:
    """Return the multilingual model on this disk for the recognizers `able` that is nearest in size.

    Without such a model, the model of an installed package.
    """
    here = [entry for entry in _readable(able) if on_disk.locate(entry)]
    return min(
        (entry for entry in here if not entry.english_only),
        key=lambda model: (
            model.engine != usual.engine,
            max(model.size / usual.size, usual.size / model.size),
        ),
        default=next((entry for entry in here if entry.package), None),
    )


def _readable(able: Collection[str]) -> list[CatalogueFile]:
    """Return the models of the table that the recognizers `able` read."""
    formats = {recognizers.format_of(engine) for engine in able}
    return [entry for entry in catalogue.TABLE if entry.role == "whisper" and entry.engine in formats]


def _compared(model: CatalogueFile, usual: CatalogueFile) -> str:
    if model.english_only:
        return f"{model.name}, which knows English only and makes more mistakes than {usual.name}"
    return f"{model.name}, which is here, instead of {usual.name}"


@dataclass(frozen=True)
class Words:
    """The model for words on this machine, without a network and with `--whisper auto`."""

    finding: str
    fix: str | None
    """The command for a better model; None: the usual model is here."""
    model: CatalogueFile | None
    """None: there would be no words."""


def find_word_model(*, gpu: str | None, available: Collection[str]) -> Words:
    """Choose as `recognizer_model` does for English, among the models on this disk. Nothing is fetched."""
    engine = recognizers.choose_recognizer(gpu, available)
    (usual,) = _entries([catalogue.default_whisper(engine, gpu=engine == gpu) or ""])
    model = _on_disk(usual) or _nearest(usual, available)
    fix = f"{usual.fetch} ({usual.total / 1e6:,.0f} MB; with a network, a first run does it, too)"
    if model is None:
        return Words(f"no model is here; {usual.name} for {engine} would be fetched", fix, None)
    if model in (usual, catalogue.find_twin(usual)):
        return Words(f"{model.name}, by {engine}", None, model)
    reader = engine if model.engine == usual.engine else model.engine
    return Words(f"{_compared(model, usual)}; by {reader}", fix, model)


def auto_models(*, gpu: str | None, available: Collection[str]) -> frozenset[str]:
    """Return the names of the models on this disk that `--models auto` and `--whisper auto` would take.

    The arguments are those of `find_word_model`. Nothing is fetched.
    """
    files = catalogue.SETS[auto_set()].files
    model = find_word_model(gpu=gpu, available=available).model
    return frozenset((*files, model.name) if model else files)


def list_whisper_choices(options: Options) -> list[OnDisk]:
    """Return the models of the table that a recognizer here can run, the models on this disk first.

    Only these if the options forbid to open a socket. Nothing is fetched.
    """
    able = (
        recognizers.installed()
        if options.recognizer == Recognizer.AUTO
        else (Recognizer(options.recognizer),)
    )
    models = [on_disk.inspect(entry, verify=False) for entry in _readable(able)]
    models = [model for model in models if model.path or not options.offline]
    return sorted(models, key=lambda model: model.path is None)


def auto_set() -> str:
    """Return the set on this disk that `--models auto` would take."""
    return next(
        name for name in catalogue.AUTO if all(map(on_disk.locate, _entries(catalogue.SETS[name].files)))
    )


def list_models(
    names: Sequence[str] = (), *, verify: bool = False, roles: Container[str] = catalogue.ROLES
) -> tuple[OnDisk, ...]:
    """Return the state on the disk of the named models, or of all; of these roles, hashed if `verify`.

    Nothing is fetched. Raises UsageError: an unknown name.
    """
    entries = _entries(names) if names else catalogue.TABLE
    return tuple(on_disk.inspect(entry, verify=verify) for entry in entries if entry.role in roles)


def fetch_models(
    names: Sequence[str] = (),
    *,
    gpu: str | None,
    available: Collection[str] = (),
    offline: bool = False,
    force: bool = False,
    reporter: Reporter = SILENT,
) -> tuple[ModelFile, ...]:
    """Fetch the named models (names of `catalogue.TABLE` or `catalogue.SETS`) into the cache, verified.

    A size means the usual recognizer's model, as in `--whisper`.
    Without names: the standard set (campplus if the Hub cannot be reached) and that recognizer's default.
    `force` also fetches files that are already there; an old file stays until the new one is complete and
    verified. Progress is ("download", bytes, bytes of all files).

    Raises:
        ModelError: a file cannot be fetched (`FetchError`), or is damaged.
        UsageError: an unknown name.
    """
    sets = catalogue.SETS
    engine = recognizers.choose_recognizer(gpu, available)
    sized = {name: entry.name for name in names if (entry := catalogue.find_by_size(name, engine))}
    parts = [
        part for name in names for part in (sets[name].files if name in sets else (sized.get(name, name),))
    ]
    if parts:
        return tuple(on_disk.obtain(_entries(parts), offline=offline, force=force, reporter=reporter))
    usual = catalogue.default_whisper(engine, gpu=engine == gpu)
    aligner = catalogue.ALIGNER if engine == Recognizer.TRANSCRIBE_CPP else None
    words = [name for name in (usual, aligner) if name]
    others = catalogue.AUTO[1:-1]
    first = _entries(sets[catalogue.AUTO[0]].files)
    try:
        both = [*first, *_entries(words)]
        return tuple(on_disk.obtain(both, offline=offline, force=force, reporter=reporter))
    except FetchError as error:
        if on_disk.is_offline(offline) or not others or all(map(on_disk.locate, first)):
            raise
        models = _instead(others[0], error, offline, reporter)
    return (*models, *on_disk.obtain(_entries(words), offline=offline, force=force, reporter=reporter))


def _entries(names: Sequence[str]) -> list[CatalogueFile]:
    table = {entry.name: entry for entry in catalogue.TABLE}
    for name in names:
        if name not in table:
            sizes = [model.removeprefix(catalogue.PREFIX) for model in table]
            hint = suggest(name, [*catalogue.SETS, *table, *sizes])
            raise UsageError(
                f"no model {name!r}{hint or ';'} choose from {', '.join([*catalogue.SETS, *table])}"
            )
    return [table[name] for name in dict.fromkeys(names)]


# --- the user's own speaker models ---


def _from_folder(choice: str, reporter: Reporter) -> DiarizationModels:
    folder = Path(choice)
    if not folder.is_dir():
        if user_files.is_path(choice):
            raise ModelError(f"no such folder: {choice}; give one with segmentation.onnx and embedding.onnx")
        hint = suggest(choice, ["auto", *catalogue.SETS])
        raise UsageError(f"no models {choice!r}{hint or ';'} give a folder, auto, {_set_names()}")
    name = folder.absolute().name
    segmentation = user_files.read_model(folder / "segmentation.onnx", f"{name}/segmentation.onnx")
    embedding = user_files.read_model(folder / "embedding.onnx", f"{name}/embedding.onnx")
    rule, rules = catalogue.find_rule(segmentation.name, embedding.name), folder / "clustering.json"
    if rule is None and not rules.exists():
        reporter.note(
            f"speakers are told apart by the usual threshold, which may not fit {embedding.name}: there may "
            f"be too many or too few; fix: put the model's own into {rules}"
        )
    return DiarizationModels(name, segmentation, embedding, _read_rule(rules, rule or catalogue.DEFAULT_RULE))


def _read_rule(path: Path, usual: Rule) -> Rule:
    if not path.exists():
        return usual
    names = [part.name for part in fields(Rule)]
    try:
        content = files.read(path)
        rule = typed_json.decode(content, Rule)
        if unknown := typed_json.decode(content, dict[str, Any]).keys() - set(names):
            raise ValueError(f"there is no {min(unknown)[:80]!r}")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        form = '{"linkage": "average" or "centroid", "threshold": above 0 and up to 2}'
        raise ModelError(
            f"{path} must read {form}, optionally with {', '.join(names[2:])} ({why}); correct or delete it"
        ) from error
    return rule

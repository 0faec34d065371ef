"""Names that people say for what the catalogue has: a GPU, an instance of a cloud, a model of Hugging Face.

Case and punctuation do not count, nor does who makes or sells it. Other names than its own stand in the file
of what they mean: `aliases` of a model, `also_called` of a system, and `usual_for`, the accelerators that it
is the usual node of, and short names that mean these.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from itertools import chain
from typing import Final, Literal, NamedTuple, TypeAlias

from traincast.catalog.documents import catalogue, catalogue_entry, read_text, values_of_key
from traincast.core import InputError

Kind: TypeAlias = Literal["model", "system"]
OWNER: Final = re.compile(
    r"(?:https?://(?:huggingface\.co|hf\.co)/)?\w[\w.-]*/([\w.-]+)", re.IGNORECASE
)  # owner/model
# Words of a model's name that do not change its sizes, and a date such as 2507.
TUNED_SUFFIX: Final = re.compile(
    r"-(?:instruct|chat|base|hf|it|pt|fp16|bf16|bnb|4bit|8bit|thinking|unsloth|nf4|\d{4})(?=-|$)"
)
# Words of a machine's name that tell it from no other: who makes or sells it, and the memory of most.
MAKERS: Final = re.compile(
    r"nvidia|amd|intel|google|amazon|microsoft|oracle|tesla|geforce|instinct|hbm3e?|standard"
)
MEMORY: Final = re.compile(r"((?<=\d)[ _-]?gi?b|(?<=[ _-]\d\d)g)(?![a-z\d])")  # its unit, not the g of a10g
DOMAIN: Final = re.compile(r"(.+?)[-_ ]?nvs[-_ ]?([1-9]\d{0,8})")  # a machine with its fast domain chosen
CHIP: Final = re.compile(r"(?!sxm|hbm|\d{1,3}$|\d+w$)[a-z]*\d+[a-z]*")  # words that say which accelerator
ACCELERATOR_COUNT: Final = re.compile(  # accelerators of a node: 8xH100, H100:8, H100x8
    r"(?P<before>\d{1,6}) ?x ?(?P<gpu>\S.*)|(?P<named>.*\S)(?::| ?x ?)(?P<after>\d{1,6})"
)
LINE: Final = 80  # columns of a message
MAX_NAME: Final = 40  # characters of a name that a message repeats
SUGGESTIONS: Final = 3


class Named(NamedTuple):
    """Model or system of the catalogue that a name means, and a sentence on it where that is not plain."""

    name: str
    taken: str = ""


def normalized_name(name: str) -> str:
    """Return the letters and digits of a name in lower case, and the points of its numbers."""
    return re.sub(r"(?!(?<=\d)\.\d)[^a-z0-9]", "", name.lower())


def plain_of(name: str) -> str:
    """Return a model's name without its owner; other names unchanged."""
    match = OWNER.fullmatch(name)
    return match[1] if match else name


# Models


def model_called(name: str) -> Named | None:
    """Return the model of the catalogue that a name means; None if there is none.

    Its owner does not count, nor words of what it is tuned for or held in.

    Examples
    --------
    >>> model_called("Qwen/Qwen3-8B"), model_called("llama3.2_3b").name, model_called("Qwen3-8B-FP8")
    (Named(name='qwen3-8b', taken=''), 'llama-3.2-3b', None)
    """
    if name.lower() in catalogue("models"):
        return Named(name.lower())
    plain = plain_of(name).lower()
    known = _models()
    model = known.get(normalized_name(plain)) or known.get(normalized_name(TUNED_SUFFIX.sub("", plain)))
    if model is None or normalized_name(plain) == normalized_name(model):
        return None if model is None else Named(model)
    return Named(model, f"{name}: taken as {model}, which has the same layers")


@cache
def _models() -> dict[str, str]:
    """Return the models of the catalogue by the letters and digits of all their names.

    Points of numbers may be left out where no other model has that name: gpt13b is not gpt-1.3b.
    """
    repositories = {
        TUNED_SUFFIX.sub("", repository(model).rpartition("/")[2].lower()): model
        for model in catalogue("models")
    }
    aliases = {alias: model for model, names in values_of_key("models", "aliases").items() for alias in names}
    own = {model: model for model in catalogue("models")}
    known = {normalized_name(name): model for name, model in (repositories | aliases | own).items() if name}
    return {name.replace(".", ""): model for name, model in known.items()} | known


def repository(model: str) -> str:
    """Return the repository on Hugging Face of a model of the catalogue; empty if it names none."""
    (source,) = values_of_key("models", "source").get(model, ("",))
    match = re.match(r"([\w.-]+/[\w.-]+), config\.json", source)
    return match[1] if match else ""


def unknown_model(name: str) -> InputError:
    """Return the error of a model that the catalogue does not have; it names those of its family."""
    known = [*catalogue("models"), *chain(*values_of_key("models", "aliases").values())]
    return _unknown("model", name, _close_models(name), known, "`traincast catalog` lists the models")


def _close_models(name: str) -> list[str]:
    """Return the models of the family of a name, the likest first; else those of a close name."""
    plain = plain_of(name).lower()
    own = {model: model for model in catalogue("models")}
    aliases = {alias: model for model, said in values_of_key("models", "aliases").items() for alias in said}
    known = aliases | own
    family = [other for other in known if _family(other) == _family(plain)]
    likeness = _likeness(plain)
    begun = _parts(plain)
    family.sort(key=lambda other: (_parts(other)[: len(begun)] != begun, likeness(other)))
    close = family or get_close_matches(plain, known, n=SUGGESTIONS)
    of_models = {known[other]: other for other in reversed(close)}  # one name of each
    return [other for other in close if of_models[known[other]] == other]


def _family(name: str) -> str:
    """Return the word that a model's name begins with: llama of meta-llama-3-8b, qwen of qwen3-8b."""
    match = re.match(r"(?:meta|nvidia)?-?([a-z]+)", name)
    return match[1] if match else ""


def _parts(name: str) -> list[str]:
    """Return the words and numbers of a name: llama3 begins llama-3-8b, but not llama-30b."""
    return re.findall(r"[a-z]+|[\d.]+", name)


def _likeness(name: str) -> Callable[[str], float]:
    """Return a function that sorts the names first that are most like a name."""
    return lambda other: -SequenceMatcher(None, other, name).ratio()


# Machines


def system_called(name: str) -> Named | None:
    """Return the system of the catalogue that a name means; None if there is none.

    The name of a GPU means its usual node. That of a machine whose fast domain is chosen has it: a100-nvs8.

    Examples
    --------
    >>> [system_called(name).name for name in ("H100-SXM", "DGX A100", "p5.48xlarge", "A100-nvs8")]
    ['dgx-h100', 'dgx-a100', 'aws-p5', 'a100-nvs8']
    """
    match = DOMAIN.fullmatch(name.lower())
    if match and (base := match[1]) in _with_domains():
        return Named(f"{base}-nvs{match[2]}")
    if name.lower() in catalogue("systems") and name.lower() not in _with_domains():
        return Named(name.lower())
    known = _systems()
    found = known.get(_machine(name)) or known.get(_machine(name, in_order=False))
    if found is None:
        return _parse_counted(name)
    system, is_usual = found
    if _machine(name) == _machine(system):
        return Named(system)
    usual = ", its usual node" if is_usual else ""
    (title,) = values_of_key("systems", "title")[system]
    return Named(system, f"{name}: taken as {system}{usual}: {title}")


def _parse_counted(name: str) -> Named | None:
    """Return the usual node of accelerators whose number is that of the node: 8xH100, H100x8 or H100:8."""
    match = ACCELERATOR_COUNT.fullmatch(name.lower())
    named = match and system_called(match["gpu"] or match["named"])
    if not match or not named or named.name not in catalogue("systems"):
        return None
    size = (catalogue_entry("systems", named.name) or {})["network"][0]["size"]
    of_node = size["value"] if isinstance(size, dict) else size
    if int(match["before"] or match["after"]) != of_node:
        return None
    (title,) = values_of_key("systems", "title")[named.name]
    return Named(named.name, f"{name}: taken as {named.name}: {title}")


def _machine(name: str, in_order: bool = True) -> str:
    """Return the words of a machine's name that count, as one; sxm5 is sxm, and 80 GB or 80g is 80."""
    words = _words(MEMORY.sub("", name.lower()))
    kept = [re.sub(r"^sxm\d$", "sxm", word) for word in words if not MAKERS.fullmatch(word)]
    return "".join(kept if in_order else sorted(kept))


@cache
def _with_domains() -> frozenset[str]:
    """Return the systems whose name says the size of the fast domain."""
    files = catalogue("systems").items()  # parsing them would take the time of a short command
    return frozenset(name for name, file in files if "\nfast_domains:" in read_text(file))


@cache
def _systems() -> dict[str, tuple[str, bool]]:
    """Return the systems by all their names; with each, whether it is that of an accelerator."""
    usual = values_of_key("systems", "usual_for").items()
    own = [(system, system) for system in catalogue("systems") if system not in _with_domains()]
    called = [
        (name, system) for system, said in values_of_key("systems", "also_called").items() for name in said
    ]
    of_usual = [(name, system) for system, said in usual for name in said]
    further = [(name, system) for said, system in of_usual for name in names_of_accelerator(said)]
    known: dict[str, tuple[str, bool]] = {}
    for of_accelerator, pairs in ((True, further), (True, of_usual), (False, called), (False, own)):
        for name, system in pairs:
            known[_machine(name)] = known[_machine(name, in_order=False)] = (system, of_accelerator)
    return known


def spoken_systems() -> tuple[str, ...]:
    """List the other names of systems as they are typed: GPUs, and instances of clouds."""
    keys = ("usual_for", "also_called")
    said = [name for key in keys for names in values_of_key("systems", key).values() for name in names]
    short = chain(
        *(
            values_of_key("accelerators", "also_called")[name]
            for name in said
            if name in catalogue("accelerators")
        )
    )
    typed = {re.sub(" gb$", "gb", name.lower()).replace(" ", "-") for name in chain(said, short)}
    return tuple(sorted(typed - (catalogue("systems").keys() - _with_domains())))


def accelerator_named(name: str) -> str | None:
    """Return the accelerator of the catalogue that its own name or a short one such as h100 means."""
    known = _accelerators()
    return known.get(_machine(name)) or known.get(_machine(name, in_order=False))


@cache
def _accelerators() -> dict[str, str]:
    """Return the accelerators by all their names; the short ones are those of the usual node."""
    of_system = values_of_key("systems", "accelerator")
    short = [
        (name, of_system[system][0])
        for system, said in values_of_key("systems", "usual_for").items()
        for name in said
    ]
    own = [(name, each) for each in catalogue("accelerators") for name in (*names_of_accelerator(each), each)]
    return {form: to for name, to in (*short, *own) for form in (_machine(name), _machine(name, False))}


def names_of_accelerator(accelerator: str) -> tuple[str, ...]:
    """Return the names of an accelerator of the catalogue besides its own; none for another word."""
    if accelerator not in catalogue("accelerators"):
        return ()
    return tuple(chain(*(values_of_key("accelerators", key)[accelerator] for key in ("name", "also_called"))))


def unknown_system(name: str) -> InputError:
    """Return the error of a system that the catalogue does not have; it names those of the same GPU."""
    if "," in name and all(map(system_called, name.split(","))):
        return InputError(f"system {name!r}", ["must be one system; `traincast compare` takes several"])
    match = ACCELERATOR_COUNT.fullmatch(name.lower())
    machine = match["gpu"] or match["named"] if match else ""
    if match and not ACCELERATOR_COUNT.fullmatch(machine) and system_called(machine):
        count = match["before"] or match["after"]
        return InputError(f"unknown system {name!r}", [f"give {machine}, and {count} as the number of GPUs"])
    known = [*_chips(), *spoken_systems()]
    return _unknown("system", name, _close_systems(name), known, "`traincast catalog` lists the systems")


def _close_systems(name: str) -> list[str]:
    """Return the systems of the GPU that a name speaks of, the likest first; else those of a close name."""
    words = [word for word in _words(name) if not MAKERS.fullmatch(word)]
    if same := _of_same_gpu(name.lower()):
        return same
    if len(words) == 1 and CHIP.fullmatch(words[0]):
        return []  # a GPU that the catalogue does not have: others are no answer
    return get_close_matches(name.lower(), _chips(), n=SUGGESTIONS, cutoff=0.5)


def _of_same_gpu(typed: str) -> list[str]:
    """Return the systems of the GPU that a name speaks of: the likest first, the usual node before others."""
    words = set(_words(typed))
    chips = _spoken_chips(typed)
    likeness = _likeness(typed)
    accelerators = values_of_key("systems", "accelerator")
    usual = {named.name for named in map(system_called, chips) if named}

    def rank(system: str) -> tuple[bool, int, bool, float]:
        described = {*_words(system), *chain(*map(_words, accelerators.get(system, ())))}
        other_kind = ("nvs" in typed) != ("nvs" in system)  # machines of the paper
        return other_kind, -len(words & described), system not in usual, likeness(system)

    return sorted((system for system, its in _chips().items() if chips & its), key=rank)


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())


@cache
def _chips() -> dict[str, frozenset[str]]:
    """Return the words that name the accelerator of each system, such as h100."""
    accelerators = values_of_key("systems", "accelerator")
    spoken = dict[str, set[str]]()
    for accelerator in catalogue("accelerators"):
        names = (accelerator, *names_of_accelerator(accelerator))
        spoken[accelerator] = {word for name in names for word in _words(name) if CHIP.fullmatch(word)}
    chips: dict[str, frozenset[str]] = {}
    for system in catalogue("systems"):
        of_accelerator = chain(*(spoken[accelerator] for accelerator in accelerators[system]))
        words = frozenset(of_accelerator) or frozenset(filter(CHIP.fullmatch, _words(system)))
        chips |= dict.fromkeys(_names_of_system(system), words)
    return chips


def _names_of_system(system: str) -> list[str]:
    """Return the names of a system, one for each of its usual fast domains."""
    return [f"{system}-nvs{n}" for n in values_of_key("systems", "fast_domains")[system]] or [system]


def _spoken_chips(name: str) -> set[str]:
    """Return the accelerators that a name speaks of, as a word of its own or else as a part of one."""
    known = set(chain(*_chips().values()))
    parts = [chip for chip in known if re.search(rf"{chip}(?![0-9])", "".join(_words(name)))]
    return known & set(_words(name)) or set(sorted(parts, key=len)[-1:])


# Messages


def unknown_entry(name: str, others: Iterable[str]) -> InputError:
    """Return the error of a name that no entry of the catalogue has, nor any of the `others`."""
    known = [*others, *_chips(), *catalogue("models")]
    close = _of_same_gpu(name.lower()) or get_close_matches(name.lower(), known, n=SUGGESTIONS)
    close = close or _close_models(name)
    all_of_them = "`traincast catalog` lists those of models, systems, accelerators and stacks"
    return _unknown("name", name, close, known, all_of_them)


def _unknown(kind: str, name: str, close: Sequence[str], known: Sequence[str], otherwise: str) -> InputError:
    """Return the error of an unknown name, with as many close ones as a line holds.

    Where none is close, it names the nearest of the `known` ones, and says `otherwise` what lists all.
    """
    shown = name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}..."
    subject = f"unknown {kind} {shown!r}"
    hint = " (any N in <gpu>-nvs<N>)" if "nvs" in name.lower() else ""
    for n in range(min(SUGGESTIONS, len(close)), 0, -1):
        error = InputError(subject, [f"did you mean {' or '.join(close[:n])}?{hint}"])
        if n == 1 or len(f"traincast: {error}") <= LINE:
            return error
    nearest = get_close_matches(name.lower(), known, n=SUGGESTIONS, cutoff=0.0)
    near = f"none is close; nearest in letters: {', '.join(nearest)}; " if nearest else ""
    return InputError(subject, [f"{near}{otherwise}"])

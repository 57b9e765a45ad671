"""What torch says of a failed guard, in words: what changed, from which value, and what to do about it.

Nothing here imports torch. A guard of a kind that is not known here is shown as torch prints it.
"""

import re
from typing import NamedTuple

__all__ = ["FailedGuard", "clean", "parse", "shorten_path"]

# Torch names the compile whose guard failed, for example "2/0", and appends the line of source that needs the guard.
_ENTRY = re.compile(r"^(?P<entry>\S*\d+/\d+): ")
_SOURCE = re.compile(r"\s{2,}# ")
_ABSOLUTE_PATH = re.compile(r"(?<![\w.~/:])/(?:[^\s/'\"`,:;()<>]+/)+[^\s/'\"`,:;()<>]*")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+| \(id=0x[0-9a-fA-F]+\)|, \d{6,}(?=\))")
_INSTALLED = re.compile(r"^.*/(?:site|dist)-packages/")

_FIRST_KEY = r"\[list\(dict\.keys\(.*\)\)\[(\d+)\]\]"
_PARAM_GROUP = re.compile(r"^.*\.param_groups\[(\d+)\]\['(\w+)'\](?:\[(\d+)\])?(\.grad)?$")
_STATE = re.compile(rf"^.*?\.state{_FIRST_KEY}\['(\w+)'\]$")
_STATE_ENTRY = re.compile(rf"^.*?\.state{_FIRST_KEY}$")

_EQUAL = re.compile(r"^(?P<what>[^=]+?) == (?P<value>[^=]+)$")
_LENGTH = re.compile(r"^len\((?P<what>.+)\) (?:==|!=) (?P<value>\d+)$")
_EMPTY = re.compile(r"^not (?P<what>[\w.\[\]'()]+)$")
_NONE = re.compile(r"^(?P<what>.+?) is (?P<was_set>not )?None$")
# torch 2.11 prints the whole object for its type; its first line is "Adam (", "tensor(3.)" or "Parameter containing:".
_SAME_OBJECT = re.compile(
    r"^(?P<check>___check_obj_id\((?P<what>.+?)\))"
    r"(?:, type=(?:<class '(?P<type>[^']+)'>|(?P<object>\w+)(?P<rest>.*)))?$"
)
_SAME_TYPE = re.compile(r"^___check_type_id\((?P<what>.+)\), type=<class '(?P<type>.+)'>$")
_TENSOR = re.compile(
    r"^tensor '(?P<what>.+)' (?P<property>[\w ]+) mismatch(?: at index (?P<index>\d+))?\."
    r" expected (?P<old>.+?)(?:, actual (?P<new>.+))?$"
)
_GLOBAL_STATE = re.compile(r"^GLOBAL_STATE changed: (?P<what>.+?)\s*$")
_FREED = re.compile(r"^Cache line invalidated because (?:L\['(?P<local>\w+)'\]\S*|(?P<what>.+)) got deallocated$")

_DIGITS = 4  # Enough to tell two steps of a schedule apart.

_HINT_LR = (
    "Give the learning rate as a tensor, lr=torch.tensor(0.01), and leave foreach unset: its value is then data, and"
    " no guard depends on it."
)
_HINT_MOMENTUM = (
    "Keep betas and momentum fixed: where a OneCycleLR or CyclicLR changes them every step,"
    " give it cycle_momentum=False."
)
_HINT_OPTION = "Keep {key} fixed: torch.compile builds a Python number into the code, so a new one needs new code."
_HINT_NUMBER_IN_STATE = (
    "Make '{key}' in the optimizer's state a tensor, for example torch.tensor(0.0): its value is then data."
)
_HINT_FIRST_STEP = (
    "The first step creates the optimizer's state, so the second one compiles again, once; one eager step before"
    " the first compiled one avoids it."
)
_HINT_GRADIENT = (
    "Keep the set of gradients the same in every step: zero_grad(set_to_none=False) leaves zeros instead of None"
    " (the optimizer then updates those parameters too)."
)
_HINT_REPLACED = (
    "A compiled step belongs to the tensors it was compiled with, and load_state_dict replaces those of the state:"
    " call it before the first compiled step."
)
_HINT_OTHER_OPTIMIZER = (
    "A compiled step belongs to one optimizer, and all optimizers of a class share one recompile limit: call"
    " torch.compiler.reset() before another one is compiled."
)


class FailedGuard(NamedTuple):
    """Why a frame was compiled again.

    Attributes:
        text: The guard as torch prints it, without paths, memory addresses and the source line it comes from.
        entry: The compile whose guard failed, as torch numbers it, for example "2/0".
        subject: What changed, in words: "lr of param group 0"; "" where that is not known.
        value: The value that `entry` was compiled for, as torch prints it, or "".
        sentence: What happened, in words; the text itself for a guard of a kind not known here.
        hint: What to do about it, or "".
    """

    text: str
    entry: str = ""
    subject: str = ""
    value: str = ""
    sentence: str = ""
    hint: str = ""

    def told(self, new_value: str = "") -> str:
        """The sentence, with the new value where it is known."""
        if self.subject and self.value and new_value and new_value != self.value:
            old, new = _short(self.value), _short(new_value)
            old, new = (old, new) if old != new else (self.value, new_value)
            return f"{self.subject} changed from {old} to {new}"
        return self.sentence


def shorten_path(path: str) -> str:
    """An installed module's path from the package on, any other file's name alone: nothing that names a machine."""
    installed = _INSTALLED.sub("", path)
    return installed if installed != path else path.rsplit("/", 1)[-1]


def clean(text: str) -> str:
    """A text of torch's without absolute paths and memory addresses."""
    shortened = _ABSOLUTE_PATH.sub(lambda path: shorten_path(path.group()), text)
    return _ADDRESS.sub("", shortened).strip()


def parse(reason: str) -> FailedGuard:
    """Read a recompile reason of torch's, as its compilation metrics and its recompile log carry it.

    Args:
        reason: For example "2/0: self.param_groups[0]['lr'] == 0.01  # for group in self.param_groups: ...".
    """
    line = reason.strip().splitlines()[0] if reason.strip() else ""
    named = _ENTRY.match(line)
    entry = named["entry"] if named else ""
    # With verbose logs torch gives every guard that failed, after semicolons; the first one is the one it gives always.
    text = clean(_SOURCE.split(line[named.end() :] if named else line)[0].split("; ")[0])
    guard = FailedGuard(text=text, entry=entry, sentence=text)
    for pattern, explain in _KINDS:
        found = pattern.match(text)
        if found:
            return explain(guard, found)
    return guard


def _subject(source: str) -> str:
    """What a piece of Python source stands for in an optimizer: "lr of param group 0"."""
    in_group, in_state, of_state = (pattern.match(source) for pattern in (_PARAM_GROUP, _STATE, _STATE_ENTRY))
    if in_group:
        group, key, index, grad = in_group.groups()
        name = f"parameter {index}" if key == "params" and index else f"{key}[{index}]" if index else key
        return f"{'gradient of ' if grad else ''}{name} of param group {group}"
    if in_state:
        return f"'{in_state[2]}' in the optimizer's state of tensor {in_state[1]}"
    if of_state:
        return f"the optimizer's state of tensor {of_state[1]}"
    if re.fullmatch(r"\w+\.state", source):
        return "the optimizer's state"
    return source


def _short(value: str) -> str:
    """A long decimal number with few digits; the guard's own text keeps them all."""
    return f"{float(value):.{_DIGITS}g}" if re.fullmatch(r"-?\d*\.\d+(e[-+]?\d+)?", value) else value


def _key(source: str) -> str:
    named = re.search(r"\['(\w+)'\](?:\[\d+\])?$", source)
    return named[1] if named else ""


def _equal(guard: FailedGuard, found: re.Match[str]) -> FailedGuard:
    # torch 2.11 wraps a Python number: ___as_tensor(self.param_groups[0]['lr']).item() == 0.01.
    source = re.sub(r"^___as_tensor\((.+)\)\.item\(\)$", r"\1", found["what"].strip())
    subject, value, key = _subject(source), found["value"].strip(), _key(source)
    if _STATE.match(source):
        hint = _HINT_NUMBER_IN_STATE.format(key=key)
    elif not _PARAM_GROUP.match(source):
        hint = ""
    elif key == "lr":
        hint = _HINT_LR
    elif key in ("betas", "momentum"):
        hint = _HINT_MOMENTUM
    else:
        hint = _HINT_OPTION.format(key=key)
    sentence = f"{subject} changed: compiled for {_short(value)}"
    return guard._replace(subject=subject, value=value, sentence=sentence, hint=hint)


def _length(guard: FailedGuard, found: re.Match[str]) -> FailedGuard:
    source, value = found["what"], found["value"]
    if source.endswith(".param_groups"):
        subject = "number of param groups"
    elif source.endswith("['params']"):
        subject = f"number of parameters of param group {_subject(source).rsplit(' ', 1)[-1]}"
    else:
        subject = f"length of {_subject(source)}"
    first = value == "0" and ".state" in source
    sentence = "the optimizer had no state yet" if first else f"{subject} changed: compiled for {value}"
    return guard._replace(subject=subject, value=value, sentence=sentence, hint=_HINT_FIRST_STEP if first else "")


def _empty(guard: FailedGuard, found: re.Match[str]) -> FailedGuard:
    if ".state" in found["what"]:
        return guard._replace(sentence="the optimizer had no state yet", hint=_HINT_FIRST_STEP)
    return guard._replace(sentence=f"{_subject(found['what'])} was empty, false or zero, and is not now")


def _none(guard: FailedGuard, found: re.Match[str]) -> FailedGuard:
    subject = _subject(found["what"])
    told = f"{subject} is None now, and was not" if found["was_set"] else f"{subject} was None, and is not now"
    return guard._replace(sentence=told, hint=_HINT_GRADIENT if subject.startswith("gradient") else "")


def _same_object(guard: FailedGuard, found: re.Match[str]) -> FailedGuard:
    source, printed = found["what"], found["object"] or ""
    kind = (found["type"] or printed or "object").rsplit(".", 1)[-1]
    kind = "Tensor" if kind == "tensor" else kind
    is_optimizer = ".optim." in (found["type"] or "") or found["rest"] == " ("
    subject = _subject(source)
    if ".state[" in source or ".param_groups[" in source:
        hint = _HINT_REPLACED
        subject = "a tensor in the optimizer's state" if ".state[" in source else subject
    else:
        hint = _HINT_OTHER_OPTIMIZER if is_optimizer else ""
    text = f"{found['check']}, type={printed}" if printed else guard.text
    return guard._replace(text=text, sentence=f"{subject} is another {kind} than the one compiled for", hint=hint)


def _same_type(guard: FailedGuard, found: re.Match[str]) -> FailedGuard:
    kind = found["type"].rsplit(".", 1)[-1]
    return guard._replace(sentence=f"the type of {_subject(found['what'])} changed: compiled for {kind}")


def _tensor(guard: FailedGuard, found: re.Match[str]) -> FailedGuard:
    prop = {"size": "size", "rank": "number of dimensions"}.get(found["property"], found["property"])
    place = f" in dimension {found['index']}" if found["index"] else ""
    subject = f"{prop} of {_subject(found['what'])}{place}"
    if found["new"]:
        return guard._replace(sentence=f"{subject} changed from {found['old']} to {found['new']}")
    return guard._replace(sentence=f"{subject} changed: compiled for {found['old'].rsplit('=', 1)[-1]}")


def _global_state(guard: FailedGuard, found: re.Match[str]) -> FailedGuard:
    return guard._replace(sentence=f"a global setting of torch changed: {found['what']}")


def _freed(guard: FailedGuard, found: re.Match[str]) -> FailedGuard:
    what = found["local"] or found["what"]
    hint = _HINT_OTHER_OPTIMIZER if what in ("self", "args", "opt", "optimizer") else ""
    return guard._replace(sentence=f"{what} of the earlier compile no longer exists, another one is given", hint=hint)


_KINDS = (
    (_TENSOR, _tensor),
    (_GLOBAL_STATE, _global_state),
    (_FREED, _freed),
    (_SAME_OBJECT, _same_object),
    (_SAME_TYPE, _same_type),
    (_LENGTH, _length),
    (_NONE, _none),
    (_EQUAL, _equal),
    (_EMPTY, _empty),
)

"""Every cause of a failure, by the code that scripts and clients can rely on: what happened, and what helps.

The message of an error says which file, line or setting; this says what kind of thing it is. docs/errors.md is made from it.
"""

from __future__ import annotations

from typing import NamedTuple


class Cause(NamedTuple):
    """One line of what happened, one of what helps."""

    meaning: str
    remedy: str


# A code is never renamed or given another meaning; new ones may be added.
COMMANDS = {
    "bad-arguments": Cause(
        "The command line has an unknown verb or flag, or an argument is missing.",
        "`elman VERB --help` lists what there is.",
    ),
    "bad-launch": Cause(
        "The processes that torchrun started cannot train together: variables, versions or settings differ.",
        "Start all of them with the same command, by one torchrun.",
    ),
    "bad-mixture": Cause(
        "The members cannot make a mixture: caches alone, or a neural cache without a net.",
        "Add a model that was trained.",
    ),
    "bad-recipe": Cause(
        "The recipe is no TOML, or has sections that are none.",
        "`docs/recipes.md` shows the form; `elman settings` lists the keys.",
    ),
    "bad-value": Cause(
        "A value has the wrong form, or is outside of its range.",
        "The message says what is possible; `elman settings` has every range and default.",
    ),
    "base-mismatch": Cause(
        "The model that training begins with does not fit what is asked for.",
        "Leave out the settings that it has settled, or begin with another.",
    ),
    "budget-too-short": Cause(
        "The budget is over before there can be a model.", "Give a longer `--budget`, or a smaller model."
    ),
    "does-not-apply": Cause(
        "A setting or flag has no effect on this model, task or engine. None is ignored.",
        "Leave it out, or choose the model that it is for.",
    ),
    "given-twice": Cause("One thing is given twice.", "Leave one of them out."),
    "missing-option": Cause("Something that is needed was not given.", "The hint says which argument or flag."),
    "no-run": Cause("There is nothing to go on with: no run was begun in this directory.", "`elman train` begins one."),
    "options-conflict": Cause("Two flags or settings exclude each other.", "Leave one of them out."),
    "run-differs": Cause(
        "A run was begun with other settings than it is to go on with.",
        "Use the settings it had, or begin anew with `--overwrite`.",
    ),
    "unknown-name": Cause(
        "There is no task, model, kind, format or device of this name.", "The hint names the nearest, or all."
    ),
    "unknown-setting": Cause(
        "The setting does not exist, or not for this model.", "The hint names the nearest; `elman settings` lists all."
    ),
    "wrong-type": Cause(
        "A call from Python was given something else than texts, rows, members or a directory.",
        "`docs/python.md` shows what each call takes.",
    ),
}
MODELS = {
    "damaged-model": Cause(
        "A file of the model is not as it was written, or its parts do not fit together.",
        "Copy or train it again; `elman doctor DIR` looks at every byte.",
    ),
    "damaged-run": Cause("What a run or comparison has saved cannot be read.", "Begin anew with `--overwrite`."),
    "models-differ": Cause(
        "The models have other vocabularies or read lines in other ways: their numbers do not go together.",
        "Train them on one text, with the same units and the same `--reset-lines`.",
    ),
    "no-model": Cause("There is no model in this directory.", "Look at the path; `elman train` makes one."),
    "no-training-text": Cause(
        "The text that the model was trained on is needed, and is not known or no longer there.",
        "Put it back, or name it.",
    ),
    "not-for-this-model": Cause(
        "The model cannot do this: it is for another task or of another family.",
        "`elman info DIR` says what it is; the hint names the verb for it.",
    ),
    "nothing-possible": Cause("Every token that could follow is forbidden.", "Forbid fewer."),
    "other-version": Cause("Another version of elman wrote this, or runs at the other end.", "Use the same version."),
    "unknown-word": Cause(
        "A word, symbol or token is none that the model knows.", "Use one of its vocabulary; `elman next` shows some."
    ),
    "unsupported-model": Cause(
        "The model of another tool is of a kind that is not read, or is a pickle.",
        "`docs/import.md` lists what is read.",
    ),
}
DATA = {
    "bad-utf8": Cause(
        "The text is not UTF-8.",
        "Convert it with `iconv`; `--set data.errors=replace` or `--errors replace` goes on without.",
    ),
    "broken-archive": Cause("A compressed file or a Parquet file is cut short or damaged.", "Copy or make it again."),
    "data-changed": Cause("The text is not the one that it was before.", "Put the old one back, or train again."),
    "empty-data": Cause(
        "There is nothing in the input, or nothing that can be used.",
        "Give more data; the message says what is missing.",
    ),
    "line-too-long": Cause(
        "A line or text is longer than is read.",
        "Cut it; `model.max_tokens` or `data.skip_bad=true` where the hint says so.",
    ),
    "malformed-arpa": Cause(
        "The ARPA file does not keep to its format.", "Write it again; the message names the line."
    ),
    "malformed-line": Cause(
        "A line does not have the form of the lines before it.",
        "Mend it; `--set data.skip_bad=true` or `--errors skip` drops such lines.",
    ),
    "malformed-vectors": Cause(
        "The file does not hold word vectors.",
        "Lines of a word and its numbers are read, or an .npz file with `words` and `vectors`.",
    ),
    "misaligned": Cause(
        "Things that belong together line by line or word by word are not equally many.",
        "Make them equally many; the message has both counts.",
    ),
    "no-known-word": Cause(
        "The file and the model have no word, or too few, in common.", "Look at case and tokenisation."
    ),
    "not-text": Cause(
        "The file is UTF-16, a picture, a document or something else that is no plain text.", "Save it as UTF-8 text."
    ),
    "nothing-to-learn": Cause(
        "The labels are all the same, all different, or not there.", "Look at which column holds them."
    ),
    "reserved-symbol": Cause(
        "The text contains a symbol that has a meaning of its own, as the end of a line has.", "Replace it in the text."
    ),
    "unknown-column": Cause("A column or key is not in the file.", "The message lists those that are."),
    "unknown-labels": Cause(
        "Too many labels of the data are none that the model knows.",
        "Is this the data of another task, or another column?",
    ),
    "unsuitable-text": Cause(
        "The text is too long, too short, or lacks what is asked about.", "The hint says what is needed."
    ),
    "wrong-format": Cause(
        "The file has another format than the task reads.",
        "`docs/formats.md` shows each; `elman doctor FILE` says what it looks like.",
    ),
}
MACHINE = {
    "bad-key": Cause(
        "A server that other machines can reach has no key, or one that is too short.",
        "`--api-key-file` names a file with a long one.",
    ),
    "busy": Cause("Another process writes there, or the server is going down.", "Try again later."),
    "cannot-encode": Cause(
        "The terminal or pipe has an encoding without the characters of the result.",
        "`PYTHONIOENCODING=utf-8` before the command.",
    ),
    "cannot-listen": Cause(
        "The server cannot have this address or port.", "Another `--port`, or `--port 0` for any that is free."
    ),
    "cannot-read": Cause("The file is not there, or may not be read.", "Look at the path and its permissions."),
    "cannot-write": Cause(
        "The output cannot be written: no permission, no directory, a file system that fails.",
        "Look at the path and its permissions.",
    ),
    "disk-full": Cause(
        "There is no space left. What was there before is unchanged.", "Free some space; `elman resume DIR` goes on."
    ),
    "lost-process": Cause(
        "Another process of a run by torchrun is gone.",
        "`elman resume DIR` under torchrun goes on from the last checkpoint.",
    ),
    "missing-package": Cause(
        "A library or program that this needs is not installed.", "The hint has the command that installs it."
    ),
    "no-stdout": Cause("There is no stdout to print the result to.", "Leave out `>&-`, or write into a file."),
    "out-exists": Cause(
        "There is something at the output already. Nothing is replaced unasked.", "`--overwrite`, or another `--out`."
    ),
    "out-of-memory": Cause(
        "The machine has no memory left.", "A smaller model, fewer data, or `--memory` for counting."
    ),
    "spark-failed": Cause(
        "Spark did not start, or could not finish.", "`docs/scale.md` has what it needs; its own log says more."
    ),
    "stopped": Cause("A signal stopped the run, which has saved itself.", "`elman resume DIR` goes on."),
    "system-error": Cause("The operating system refused something.", "The message has its words."),
    "too-little-memory": Cause(
        "What is asked for needs more memory than there is, or than `--memory` allows.",
        "The hint names a size that fits.",
    ),
}
RESULTS = {
    "bad-data": Cause("A task or model of your own found its data wrong.", "The message says where."),
    "bug": Cause("A mistake in elman itself.", "Please report it, with the output under `ELMAN_DEBUG=1`."),
    "diverged": Cause(
        "Training, or adaptation, met numbers that are not finite again and again.", "Lower the learning rate."
    ),
    "drawing-failed": Cause("The picture cannot be drawn.", "Write `.html` or `.json` instead."),
    "export-differs": Cause(
        "The exported graph gives other numbers than the model, so nothing was written.",
        "Please report it with the model's settings.",
    ),
    "failed": Cause("A task or model of your own failed.", "The message says why."),
    "part-failed": Cause(
        "A comparison has no model that worked, or a mixture in it a member that did not.",
        "The message has the reason of the first.",
    ),
    "wrong-usage": Cause("A task or model of your own refused what was asked.", "The message says why."),
}
GROUPS = {
    "What was asked for": COMMANDS,
    "Models": MODELS,
    "Data": DATA,
    "The machine": MACHINE,
    "Results, and code of your own": RESULTS,
}
CAUSES = {code: cause for group in GROUPS.values() for code, cause in group.items()}

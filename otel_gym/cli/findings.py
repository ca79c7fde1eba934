"""What `verify` can find, what each means, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

DAMAGED_LINE = "damaged_line"
TORN_LINE = "torn_line"
NO_CALL = "no_call_in_line"
REPEATED_CALL = "repeated_call"
COPIED_FILE = "copied_file"
UNCHECKED_IDS = "unchecked_ids"
INCOMPLETE = "incomplete"
EMPTY_FILE = "no_records"
UNREADABLE_FILE = "unreadable_file"
UNCHECKED_LINE = "unchecked_line"
NO_NEWLINE = "no_newline"
NO_CALL_ID = "no_call_id"
FOREIGN_FILE = "foreign_file"
OPEN_PERMISSIONS = "open_permissions"
READ_ONLY = "read_only"
ODD_MARKER = "odd_marker"
COLLECTING = "collection_lock"
UNATTRIBUTED = "unattributed_calls"

MEANING = {
    TORN_LINE: "a writer was killed, or the disk filled up, while it wrote this line. Its client had not seen the end "
    "of the answer, so at most one call is lost. read_available() skips the line, the next record stands on a fresh "
    "one: nothing needs to be done.",
    DAMAGED_LINE: "the line is no JSON object: cut, overwritten, or edited. What it held is lost to every reader; the "
    "other lines are good, and read_available() gives them. Restore the file from a copy, or run the rollout again.",
    NO_CALL: "the line is a JSON object, but no model call: a field has the wrong type. read_available() gives it, the "
    "readers of model calls leave it out. Look at the line, and at what wrote it.",
    UNCHECKED_LINE: "the line is too long to be looked into here; readers do read it.",
    REPEATED_CALL: "two lines have the same model_call_id, so sums count that call twice. A file was joined from "
    "copies, or written by two programs. Remove one of the lines.",
    COPIED_FILE: "the first call of this file is the first call of another rollout too: one is a copy, or was renamed. "
    "Remove the copy, or totals over the directory count its calls twice.",
    UNCHECKED_IDS: "so many calls look as if they stood twice that not all of them were looked for. Where some are "
    "named above, mend those and verify again; where none is, the directory has too many calls to compare them all.",
    INCOMPLETE: "the marker file says that at least one call of the rollout could not be written: the disk was full or "
    "failing, a write took too long, or a body was over the limit. The model server's log says which. Run the rollout "
    "again, or leave it out.",
    EMPTY_FILE: "a call was about to be written and never was: its writer was killed or failed. Run the rollout again.",
    UNREADABLE_FILE: "the file cannot be read, so nothing is known of its calls. Mind its owner and permissions; if it "
    "is locked, some process holds it: a model server writes for milliseconds only.",
    NO_NEWLINE: "the last record is whole but has no newline behind it, as after an edit by hand. The next append adds "
    "one: nothing needs to be done.",
    NO_CALL_ID: "the record has no model_call_id of 32 hexadecimal characters, so no observation can be joined to "
    "it. It was not written by this capture.",
    FOREIGN_FILE: "not a file that the capture makes or reads: it may be anything, or a capture file under a wrong "
    "name (then no reader finds its calls: rename it to <rollout id>.capture.jsonl).",
    OPEN_PERMISSIONS: "everybody on this machine may change the evidence. chmod o-w it, if that is not meant.",
    READ_ONLY: "the file's owner may not write it, so later calls of the rollout cannot be appended. chmod u+w it, "
    "unless it has been put away on purpose.",
    ODD_MARKER: "a marker is an empty file; this one is something else, or has content, which nothing reads. It counts "
    "all the same.",
    COLLECTING: "a collection is running, or was: the lock itself is given back by the system, the file stays.",
    UNATTRIBUTED: "model calls that belong to no rollout came to the model servers while the last collection ran: they "
    "are in no file. A client's base URL lacks /ng-rollout/<rollout id>; the model server's log says whose.",
}

_NOTES = {
    UNCHECKED_IDS,
    NO_NEWLINE,
    NO_CALL_ID,
    FOREIGN_FILE,
    OPEN_PERMISSIONS,
    READ_ONLY,
    ODD_MARKER,
    COLLECTING,
    UNATTRIBUTED,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        file: the name of the file within the directory.
        code: what it is, a key of `MEANING`.
        line: the number of the line, from 1; None for the whole file.
        detail: what exactly.
    """

    file: str
    code: str
    line: int | None = None
    detail: str = ""

    @property
    def severity(self) -> str:
        """`problem` where something is missing or damaged, else `note`."""
        return "note" if self.code in _NOTES else "problem"

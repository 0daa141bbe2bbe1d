"""Turns the scores that come with music21 into records: the notes that sound at one moment.

    pip install music21
    python docs/data_sets/chords.py chords.jsonl.gz
    python -m experiments.prepare --input=chords.jsonl.gz --min_count=5 \\
      --name=chords

The items are pitches, from the lowest to the highest. The context is the composer, the key
signature, the metre, the beat, the place in the piece, the number of voices, and the notes that
sounded before. A record is made at each beat where other notes sound than at the beat before.
"""

import gzip
import json
import multiprocessing
import sys
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from music21 import converter, corpus, stream
from tqdm import tqdm

COMPOSERS = ("bach", "haydn", "monteverdi", "mozart", "palestrina")
MOST_WORKS = 150  # Of a composer, evenly spaced: Palestrina has 1 318, Bach 433.
FEWEST, MOST = 3, 6  # Different pitches at once.


def main(records: str) -> None:
    """Writes the records of all works as JSON Lines, the works in the order of their names."""
    works = [
        (composer, str(path))
        for composer in COMPOSERS
        for path in evenly(sorted(corpus.getComposer(composer)), MOST_WORKS)
    ]
    with multiprocessing.Pool() as pool, gzip.open(records, "wt", encoding="utf-8") as file:
        for rows in tqdm(pool.imap(rows_of, works), total=len(works), unit=" works"):
            file.writelines(json.dumps(row) + "\n" for row in rows)


def evenly(paths: list[Any], most: int) -> list[Any]:
    """At most so many paths, at equal distances."""
    return paths[:: -(-len(paths) // most)]


def rows_of(work: tuple[str, str]) -> list[dict[str, Any]]:
    """The records of one work, none where its score cannot be read."""
    composer, path = work
    try:
        score = converter.parse(path)
    except Exception as error:
        print(f"{path}: left out: {error}", file=sys.stderr)
        return []
    scores = score.scores if isinstance(score, stream.Opus) else [score]
    return [
        {**row, "id": f"{path.split('corpus/')[-1]}-{number}-{row['id']}"}
        for number, one in enumerate(scores)
        for row in moments(composer, path.split("corpus/")[-1], one)
    ]


def moments(composer: str, group: str, score: Any) -> Iterator[dict[str, Any]]:
    """The records of a score."""
    sounding = pitches_by_beat(score)
    before: list[str] | None = None
    for beat, heights in sorted(sounding.items()):
        pitches = sorted(heights, key=lambda name: (heights[name], name))
        if FEWEST <= len(pitches) <= MOST and pitches != before:
            yield {
                "id": str(beat),
                "group": group,
                "items": pitches,
                "context": {
                    "composer": composer,
                    "voices": str(len(score.parts)),
                    "place": beat / (max(sounding) + 1),
                    "before": before,
                    **signatures(score, beat),
                },
            }
        before = pitches


def pitches_by_beat(score: Any) -> dict[int, dict[str, float]]:
    """The pitches that sound at each quarter note from the beginning, and their heights."""
    sounding: dict[int, dict[str, float]] = {}
    for part in score.parts:
        for note in part.flatten().notes:
            start = Fraction(note.offset)
            end = start + Fraction(note.quarterLength)
            beat = -(-start // 1)
            heights = {pitch.nameWithOctave: pitch.ps for pitch in note.pitches}
            while beat < end:
                sounding.setdefault(int(beat), {}).update(heights)
                beat += 1
    return sounding


def signatures(score: Any, beat: int) -> dict[str, Any]:
    """Key signature, metre, and the beat in the measure, as the first voice has them."""
    voice = score.parts[0].flatten()
    key = voice.getElementAtOrBefore(beat, ["KeySignature"])
    metre = voice.getElementAtOrBefore(beat, ["TimeSignature"])
    context = {"key_signature": None if key is None else str(key.sharps)}
    if metre is None:
        return context
    first = score.parts[0].getElementsByClass("Measure").first()
    offset = beat + (first.paddingLeft if first else 0)  # An upbeat does not begin a measure.
    in_measure = float(offset % metre.barDuration.quarterLength)
    return {**context, "metre": metre.ratioString, "beat": f"{in_measure:g}"}


if __name__ == "__main__":
    main(*sys.argv[1:])

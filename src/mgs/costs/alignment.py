"""METEOR's alignment of two sentences: one to one, with the most matches, and among those with the fewest chunks.

Places in the reference are bits of an integer: word i of the hypothesis may match the places in `masks[i]`. A chunk is
a run of words next to each other in both sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

State = tuple[int, int, int]

#: Open alignments kept after each word: at first few, which mostly reach the least number that can be; else many.
NARROW, WIDE = 4, 128
#: Words times open alignments, at most: hypotheses that never end are long.
EFFORT = 4096


def align(masks: Sequence[int]) -> tuple[int, int]:
    """The most matches, and the fewest chunks with so many.

    The fewest chunks are hard to find in general, so the search keeps `WIDE` open alignments after each word at most. A
    number that equals the lower bound is proven, though: nine sentences in ten need no more than the narrow search.

    >>> align([0b100, 0b010, 0b001])  # three words in reverse
    (3, 3)
    >>> align([0b1001, 0b0010, 0b1001])  # the first word matches the first place or the last: the first continues
    (3, 2)
    """
    masks = _with_single_gaps(masks)
    found = _most_matches(masks)
    if len(found) < 2:
        return len(found), len(found)
    left_out = sum(mask > 0 for mask in masks) - len(found)
    bounds = _bounds(masks)
    chunks = _search(masks, bounds, left_out, NARROW)
    if chunks != max(0, bounds[0][0] - left_out):
        width = max(NARROW, min(WIDE, EFFORT // len(masks)))
        chunks = min(_search(masks, bounds, left_out, width), _chunks(found))
    return len(found), chunks


def _with_single_gaps(masks: Sequence[int]) -> list[int]:
    """All that matters of words without a match is whether there is one in between."""
    return [mask for i, mask in enumerate(masks) if mask or (i and masks[i - 1])]


def _most_matches(masks: Sequence[int]) -> dict[int, int]:
    """A largest matching, place → word, by augmenting paths."""
    owner: dict[int, int] = {}
    taken = 0
    for word in range(len(masks)):
        seen, asking = 0, word
        path: list[tuple[int, int]] = []  # who asks for which place, if its owner can move
        while not (free := masks[asking] & ~taken):
            if others := masks[asking] & ~seen:
                bit = others & -others
                seen |= bit
                path.append((bit, asking))
                asking = owner[bit]
            elif path:
                _, asking = path.pop()
            else:
                break
        else:
            taken |= free & -free
            owner[free & -free] = asking
            owner.update(path)
    return owner


def _chunks(found: dict[int, int]) -> int:
    """Chunks of an alignment, place → word."""
    place = {word: bit for bit, word in found.items()}
    return sum(place.get(word - 1, 0) << 1 != bit for word, bit in place.items())


def _bounds(masks: Sequence[int]) -> list[tuple[int, int]]:
    """For each word, a lower bound of the chunks from it on, and the places where it needs one less to go on.

    It is the number there would be if words of the hypothesis could share a place: then the longest run is always best.
    """
    chunks = places = 0
    bounds = [(0, 0)]
    for mask in reversed(masks):
        going_on = mask & places >> 1
        chunks, places = chunks + (mask > 0 and not going_on), going_on or mask
        bounds.append((chunks, places))
    return bounds[::-1]


def _ahead(masks: Sequence[int]) -> tuple[list[int], list[int]]:
    """For each word: the places that later words can match, and how many later words can match one of its own."""
    wanted, rivals = [0], []
    later: Counter[int] = Counter()
    for mask in reversed(masks):
        rivals.append(sum(count for other, count in later.items() if other & mask))
        wanted.append(wanted[-1] | mask)
        later[mask] += 1
    return wanted[-2::-1], rivals[::-1]


def _search(masks: Sequence[int], bounds: Sequence[tuple[int, int]], left_out: int, width: int) -> int:
    """The fewest chunks found when exactly `left_out` of the words that could match do not."""
    wanted, rivals = _ahead(masks)
    worst = len(masks) + 1
    # (places used that are wanted later, the place that would continue the chunk, words left out) → chunks
    states = {(0, 0, 0): 0}
    for i, mask in enumerate(masks):
        later, following = wanted[i], masks[i + 1] if i + 1 < len(masks) else 0
        grown: dict[State, int] = {}
        for (used, continuing, out), chunks in states.items():
            free = mask & ~used
            # With fewer rivals than places, one stays free to the end: leaving this word out would lose a match.
            if not mask or (out < left_out and free.bit_count() <= rivals[i]):
                key = (used & later, 0, out + (mask > 0))
                if chunks < grown.get(key, worst):
                    grown[key] = chunks
            while free:
                bit = free & -free
                free ^= bit
                key = ((used | bit) & later, bit << 1 & following, out)
                more = chunks + (bit != continuing)
                if more < grown.get(key, worst):
                    grown[key] = more
        states = _best(grown, width, bounds[i + 1], left_out) if len(grown) > width else grown
    return min(states.values(), default=worst)


def _best(states: dict[State, int], width: int, bound: tuple[int, int], left_out: int) -> dict[State, int]:
    """The states that may end with the fewest chunks. Every word that is still to be left out saves one at most."""
    least, places = bound

    def promise(item: tuple[State, int]) -> int:
        (_, continuing, out), chunks = item
        return chunks + max(0, least - (continuing & places > 0) - (left_out - out))

    return dict(sorted(states.items(), key=promise)[:width])

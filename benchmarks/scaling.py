"""What an update would take with more processes and larger models, from what `mgs bench --json` measured for one.

python benchmarks/scaling.py benchmarks/results/h200-parts.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mgs.experiments.scaling import Machine

PROCESSES = (1, 8, 64, 1024)
MODELS = {"124 M": 124e6, "1.5 B": 1.5e9, "7 B": 7e9}
SEARCHES = {"K = 1,024, full rank": (1024, False), "K = 1,024, rank 1": (1024, True), "K = 8, full rank": (8, False)}


def main(file: Path) -> None:
    results = [r for r in json.loads(file.read_text()) if "parts" in r]
    for result in results:
        machine = Machine.of(result)
        print(f"From {result['model']} on {result['machine']}: {machine}\n")
        for search, (candidates, thin) in SEARCHES.items():
            print(f"| {search} | " + " | ".join(f"{n:,} process{'es' * (n > 1)}" for n in PROCESSES) + " |")
            print("|---|" + "---:|" * len(PROCESSES))
            for name, size in MODELS.items():
                cells = []
                for processes in PROCESSES:
                    parts = machine.predict(processes, candidates, size, thin)
                    total = sum(parts.values())
                    most = max(parts, key=lambda part: parts[part])
                    cells.append(f"{total:.3g} s ({most} {parts[most] / total:.0%})")
                print(f"| {name} | " + " | ".join(cells) + " |")
            print()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))

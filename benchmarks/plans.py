"""Is the plan of `elman train lm --budget` as good as the best fixed recipe, whatever the text?

    python benchmarks/plans.py NAME=TRAIN,VALID,UNITS … [--seconds 60] [--recipes hidden=200,dropout=0.2 …]

On each corpus the plan chooses the net's sizes, then each recipe fixes some of them; all else, n-grams, caches and
weights, is the same. The perplexity is that on text nothing was tuned on, all of VALID (`train_elman` of minutes.py).
`--jobs` runs are made at a time, with `--threads` each.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from minutes import train_elman

RECIPES = ("hidden=200,dropout=0.2", "hidden=400,dropout=0.4")
PLAN = ""  # the recipe that fixes nothing


def perplexity(corpus: str, recipe: str, *, seconds: float, threads: int) -> float:
    """Of a corpus `TRAIN,VALID,UNITS` after so many seconds."""
    train, valid, units = corpus.split(",")
    settings = [f"model.{setting}" for setting in recipe.split(",") if setting]
    found = train_elman(
        Path(train), Path(valid), seconds=seconds, seed=1, threads=threads, units=units, settings=settings
    )
    return found["perplexity"]


def main() -> None:
    """Print a row for each corpus: the plan, the recipes, and how far the plan is from the best of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", metavar="NAME=TRAIN,VALID,UNITS")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    recipes = [PLAN, *given.recipes]
    print("corpus", "plan", *given.recipes, "plan over best recipe", sep="\t", flush=True)
    with ThreadPoolExecutor(given.jobs) as pool:
        rows = [
            (
                name,
                [
                    pool.submit(perplexity, corpus, recipe, seconds=given.seconds, threads=given.threads)
                    for recipe in recipes
                ],
            )
            for name, _, corpus in (each.partition("=") for each in given.corpora)
        ]
        for name, running in rows:
            plan, *fixed = [each.result() for each in running]
            print(
                name,
                *(f"{number:.3f}" for number in (plan, *fixed)),
                f"{plan / min(fixed) - 1:+.1%}",
                sep="\t",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Turns the Ta-Feng grocery data into records: what a customer bought on one day.

    python docs/data_sets/ta_feng.py ta_feng.csv.zip ta_feng.jsonl.gz
    python -m experiments.prepare --input=ta_feng.jsonl.gz --max_items=16 --longer=subsample \\
      --min_count=5 --history=bought_before --name=ta_feng

The items are classes of products. The context is the customer, the day, and what the same
customer bought on earlier days; nothing in it comes from the basket itself. docs/data.md says
where the table is.
"""

import collections
import csv
import datetime
import gzip
import io
import json
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

from tqdm import tqdm

BEFORE = 20  # The classes bought most recently that a record shows.
FEWEST = 2  # Classes in a basket: one alone has nothing around it.


def main(table: str, records: str) -> None:
    """Writes the records of a table as JSON Lines."""
    baskets = read(table)
    with gzip.open(records, "wt", encoding="utf-8") as file:
        for row in rows(baskets):
            file.write(json.dumps(row) + "\n")


def read(table: str) -> dict[str, dict[datetime.date, dict[str, Any]]]:
    """Customer to day to basket; customers in the order in which they first came."""
    customers: dict[str, dict[datetime.date, dict[str, Any]]] = {}
    with zipfile.ZipFile(table) as archive, archive.open(archive.namelist()[0]) as file:
        for line in tqdm(csv.DictReader(io.TextIOWrapper(file, "utf-8-sig")), desc="lines"):
            day = datetime.datetime.strptime(line["TRANSACTION_DT"], "%m/%d/%Y").date()
            days = customers.setdefault(line["CUSTOMER_ID"], {})
            basket = days.setdefault(
                day, {"classes": {}, "age": line["AGE_GROUP"], "area": line["PIN_CODE"]}
            )
            basket["classes"][line["PRODUCT_SUBCLASS"]] = None
    return customers


def rows(customers: dict[str, dict[datetime.date, dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """One record for each customer and day with enough classes."""
    for customer, days in tqdm(customers.items(), desc="customers"):
        before: collections.OrderedDict[str, None] = collections.OrderedDict()
        last = None
        for visit, (day, basket) in enumerate(sorted(days.items())):
            recent = list(before)[-BEFORE:]
            if len(basket["classes"]) >= FEWEST:
                yield {
                    "id": f"{customer}-{day}",
                    "group": customer,
                    "items": list(basket["classes"]),
                    "context": {
                        "age": basket["age"].strip() or None,
                        "area": None if basket["area"] == "Unknown" else basket["area"],
                        "weekday": f"{day:%A}",
                        "month": f"{day:%B}",
                        "visits_before": visit,
                        "days_since_last_visit": (day - last).days if last else None,
                        "bought_before": recent or None,
                    },
                }
            for name in basket["classes"]:
                before[name] = None
                before.move_to_end(name)
            last = day


if __name__ == "__main__":
    main(*sys.argv[1:])

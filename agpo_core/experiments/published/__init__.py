"""The papers' own numbers, as printed. They never share an axis or a table row with ours."""

from pathlib import Path

import pandas as pd


def load(table: str) -> pd.DataFrame:
    """A published table in long form.

    Args:
        table: "agpo_table1", AGPO Table 1: accuracy in %, mean over the paper's three seeds.
    Returns:
        Columns method, benchmark, accuracy, in the paper's order.
    """
    return pd.read_csv(Path(__file__).parent / f"{table}.csv")


def wide(published: pd.DataFrame) -> pd.DataFrame:
    """The table as printed: a row a method, a column a benchmark, and the mean over benchmarks."""
    table = published.pivot(index="method", columns="benchmark", values="accuracy")
    table = table.loc[published["method"].unique(), published["benchmark"].unique()]
    return table.assign(mean=table.mean(axis=1))

"""The report's files: their numbers are computed again from the Parquet files."""

import base64
import csv
import html.parser
import io
import math
import re
import statistics

import pyarrow.parquet
import pytest
import scipy.stats
from matplotlib import image

from cbert.evaluation.compare import share_of_worth
from cbert.report import report_data, writers
from tests.report_runs import BASELINES, TIME, VALUES, importance, write_run

SEEDS = {"none": (0, 1, 2), "gs": (0, 1, 2), "gsu": (0, 2)}
GAINS = {"none": 0.0, "gs": 0.4, "gsu": 0.05}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Three methods, one of them without a seed, and their report."""
    directory = tmp_path_factory.mktemp("sweep")
    for method, seeds in SEEDS.items():
        for seed in seeds:
            rise = None if method == "none" else importance(0.3 + 0.1 * seed, 0.2)
            write_run(directory, method, seed, GAINS[method], feature_importance=rise)
    (directory / "report").mkdir()
    (directory / "report" / "gain_by_feature_09.png").write_bytes(b"of an earlier report")
    (directory / "report" / "notes.txt").write_text("mine")
    writers.write(report_data.load(directory, "test", "none"))
    return directory


def rows(path):
    return list(csv.DictReader(path.open(encoding="utf-8")))


def read(sweep, method, seed):
    """Columns of a run's table as lists."""
    path = sweep / f"{method}-{seed}" / "eval" / "test.parquet"
    return pyarrow.parquet.read_table(path).to_pydict()


def measured(table, metric, prefix=""):
    """A metric of every query, computed in plain Python."""
    if metric == "cross_entropy":
        return [-value for value in table[f"{prefix}log_probability"]]
    if metric == "mrr":
        return [1 / rank for rank in table[f"{prefix}rank"]]
    most = int(metric.partition("@")[2])
    if metric.startswith("ndcg"):
        return [(r <= most) / math.log2(r + 1) for r in table[f"{prefix}rank"]]
    return [float(rank <= most) for rank in table[f"{prefix}rank"]]


SHOWN = ("cross_entropy", "recall@1", "recall@5", "recall@250")
METRICS = (*SHOWN, "mrr", "ndcg@10")  # Those of the files.


def test_results_are_those_of_the_parquet_files(sweep):
    results = {
        (row["name"], row["split"], row["metric"]): row
        for row in rows(sweep / "report" / "results.csv")
    }
    for method, seeds in SEEDS.items():
        for metric in METRICS:
            means = [statistics.fmean(measured(read(sweep, method, s), metric)) for s in seeds]
            row = results.pop((method, "test", metric))
            assert float(row["mean"]) == pytest.approx(statistics.fmean(means))
            error = statistics.stdev(means) / math.sqrt(len(seeds))
            assert float(row["standard_error"]) == pytest.approx(error)
            assert (row["over"], row["count"]) == ("seeds", str(len(seeds)))
        row = results.pop((method, "validation", "cross_entropy_at_best_step"))
        expected = [3.4 - GAINS[method] + 0.01 * seed for seed in seeds]
        assert float(row["mean"]) == pytest.approx(statistics.fmean(expected))
    table = read(sweep, "none", 0)
    for baseline in BASELINES:
        for metric in METRICS[:1] if "without" in baseline else METRICS:
            values = measured(table, metric, re.sub("[ -]", "_", baseline.lower()) + "_")
            row = results.pop((baseline, "test", metric))
            assert float(row["mean"]) == pytest.approx(statistics.fmean(values))
            assert float(row["standard_error"]) == pytest.approx(
                error_over_groups(table, values)
            )
            assert (row["over"], row["count"]) == ("groups", "20")
    assert not results


def error_over_groups(table, values):
    """sqrt(G / (G - 1) sum_g (sum of what is above the mean)^2) / Q."""
    mean, above = statistics.fmean(values), {}
    for name, value in zip(table["group"], values, strict=True):
        above[name] = above.get(name, 0.0) + value - mean
    total = sum(value**2 for value in above.values())
    return math.sqrt(len(above) / (len(above) - 1) * total) / len(values)


@pytest.fixture(scope="module")
def paired(sweep):
    return rows(sweep / "report" / "paired.csv")


def test_paired_differences_are_those_of_the_parquet_files(sweep, paired):
    pairs = [("none", "gs"), ("none", "gsu"), ("gs", "gsu")]
    assert [(row["metric"], row["base"], row["other"]) for row in paired] == [
        (metric, *pair) for metric in METRICS for pair in pairs
    ]
    for row in paired:
        seeds = sorted({*SEEDS[row["base"]]} & {*SEEDS[row["other"]]})
        assert row["seeds"] == " ".join(map(str, seeds))
        by_seed = []
        for seed in seeds:
            one, other = (read(sweep, row[name], seed) for name in ("base", "other"))
            columns = (measured(table, row["metric"]) for table in (other, one))
            by_seed.append([a - b for a, b in zip(*columns, strict=True)])
        means = [statistics.fmean(values) for values in by_seed]
        assert list(map(float, row["by_seed"].split())) == pytest.approx(means)
        values = [statistics.fmean(column) for column in zip(*by_seed, strict=True)]
        assert float(row["difference"]) == pytest.approx(statistics.fmean(values))
        variance, freedom = variance_and_freedom(one["group"], by_seed)
        assert float(row["standard_error"]) == pytest.approx(math.sqrt(variance), abs=1e-9)
        assert float(row["degrees_of_freedom"]) == pytest.approx(freedom, rel=1e-5)
        reach = scipy.stats.t.ppf(0.975, freedom) * math.sqrt(variance)
        ends = [statistics.fmean(values) - reach, statistics.fmean(values) + reach]
        assert [float(row["low"]), float(row["high"])] == pytest.approx(ends, abs=1e-6)


def variance_and_freedom(groups, by_seed):
    """The formulas of docs/sweeps.md, for groups of eight queries each, in plain Python."""
    seeds, names = len(by_seed), sorted(set(groups))
    cells = [
        [
            statistics.fmean(v for v, g in zip(values, groups, strict=True) if g == name)
            for name in names
        ]
        for values in by_seed
    ]
    of_groups = [statistics.fmean(column) for column in zip(*cells, strict=True)]
    of_seeds = [statistics.fmean(row) for row in cells]
    mean, count = statistics.fmean(of_seeds), len(names)
    rest = sum(
        (cell - of_seed - of_group + mean) ** 2
        for row, of_seed in zip(cells, of_seeds, strict=True)
        for cell, of_group in zip(row, of_groups, strict=True)
    )
    ones = seeds - 1, count - 1, (seeds - 1) * (count - 1)
    parts = [
        statistics.variance(of_seeds) / seeds,
        statistics.variance(of_groups) / count,
        rest / ones[2] / seeds / count,
    ]
    total = max(parts[0] + parts[1] - parts[2], parts[0], parts[1])
    squares = sum(part**2 / one for part, one in zip(parts, ones, strict=True))
    return total, 2 / (squares / (total or 1.0) ** 2 + 1 / ones[0])


def test_three_seeds_are_too_few_for_a_verdict(sweep, paired):
    assert {row["verdict"] for row in paired} == {"too few seeds for a verdict"}
    assert not any(row["better"] for row in paired)
    text = (sweep / "report" / "report.md").read_text()
    assert text.count("| too few seeds for a verdict |") == 3 * len(SHOWN)
    assert re.search(r"\| 3 seeds and groups +\|", text)
    assert re.search(r"\| 2 seeds and groups +\|", text)


def test_holm_is_over_the_pairs_of_a_metric(paired):
    for metric in METRICS:
        p_values = sorted(
            (float(row["p"]), float(row["p_holm"])) for row in paired if row["metric"] == metric
        )
        least = 0.0
        for factor, (p, corrected) in zip((3, 2, 1), p_values, strict=True):
            least = max(least, min(1.0, factor * p))
            assert corrected == pytest.approx(least)


def test_the_tables_show_the_same_numbers(sweep):
    folder = sweep / "report"
    results = {
        (row["name"], row["split"], row["metric"]): row for row in rows(folder / "results.csv")
    }
    markdown, latex = ((folder / f"report.{kind}").read_text() for kind in ("md", "tex"))
    page = (folder / "report.html").read_text()
    row = results["gs", "test", "cross_entropy"]
    mean, error = f"{float(row['mean']):.4f}", f"{float(row['standard_error']):.4f}"
    recall = results["gs", "test", "recall@250"]
    percent = f"{100 * float(recall['mean']):.2f} ± {100 * float(recall['standard_error']):.2f}"
    assert re.search(
        rf"^\| gs +\| +{mean} ± {error} \|.* {percent} \|.* 3 seeds \|", markdown, re.M
    )
    assert f"gs & {mean} $\\pm$ {error} & " in latex
    assert re.search(
        rf'gs</th>\n<td>{mean}<span class="error" style="[^"]*">±&nbsp;{error}<', page
    )
    assert r"\toprule" in latex
    assert latex.count(r"\midrule") == 3 + 2  # The second table is of the differences.
    # The seeds of gs measured 0.3, 0.4 and 0.5, those of gsu 0.3 and 0.5.
    error = f"{statistics.stdev([0.3, 0.4, 0.5]) / math.sqrt(3):.4f}"
    assert f"| +0.4000 ± {error} | +0.4000 ± 0.1000 |\n" in markdown
    assert "| +0.2000 ± 0.0000 | +0.2000 ± 0.0000 |\n" in markdown
    assert "gsu, seed 1: no run, but 2 other variants have one" in markdown
    assert "evaluated without feature importance" not in markdown


def test_a_paper_has_short_captions_and_the_differences(sweep, paired):
    latex = (sweep / "report" / "report.tex").read_text()
    first, second = re.findall(r"^\\caption\{small, test split: (.*)\}$", latex, re.M)
    assert first == r"mean $\pm$ standard error over seeds, of baselines over groups."
    assert second.startswith("differences in cross-entropy (nats) on the same queries, ")
    row = next(row for row in paired if (row["base"], row["other"]) == ("gs", "gsu"))
    names = "difference", "standard_error", "low", "high", "p_holm"
    mean, error, low, high, p = (f"{float(row[name]):.4f}" for name in names)
    cells = rf"+{mean} $\pm$ {error} & [+{low}, +{high}] & {p} & too few seeds for a verdict"
    assert f"gsu $-$ gs & {cells} " in latex


def test_a_context_that_is_worth_nothing_has_no_shares():
    assert share_of_worth(4.0, 5.0, 3.0) == 0.5
    assert share_of_worth(4.0, 3.0, 3.0) is None


def test_the_share_of_the_contexts_worth_by_hand(sweep):
    nats = {
        name: statistics.fmean(measured(read(sweep, "none", 0), "cross_entropy", prefix))
        for name, prefix in (
            ("without", "bayes_optimal_without_context_"),
            ("best", "bayes_optimal_"),
        )
    }
    worth = nats["without"] - nats["best"]
    assert worth == pytest.approx(0.8, abs=0.2)
    shares = [
        (nats["without"] - statistics.fmean(measured(read(sweep, "gs", s), "cross_entropy")))
        / worth
        for s in SEEDS["gs"]
    ]
    error = statistics.stdev(shares) / math.sqrt(3)
    cell = f"{100 * statistics.fmean(shares):.2f} ± {100 * error:.2f}"
    text = (sweep / "report" / "report.md").read_text()
    assert re.search(rf"^\| gs +\|.* {re.escape(cell)} \|", text, re.M)
    assert re.search(r"^\| +\|.* share of the context's worth % +\|", text, re.M)


class Page(html.parser.HTMLParser):
    """Tags, attributes, and the text outside of styles."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.text, self.images = set(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        for name, value in attributes:
            if name in ("src", "srcset", "href", "action", "data"):
                self.links.append(value)
        if tag == "img":
            self.images.append(dict(attributes))

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_needs_nothing_else_and_holds_no_markup_of_names(sweep):
    text = (sweep / "report" / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.tags == {
        *("html", "head", "meta", "title", "style", "body", "main", "section", "h1", "h2"),
        *("p", "ul", "li", "figure", "figcaption", "div", "table", "thead", "tbody", "tr"),
        *("th", "td", "span", "img"),
    }
    assert all(link.startswith("data:image/png;base64,") for link in page.links)
    assert not re.search(r"url\(|@import|https?:", text)
    assert any(TIME in part for part in page.text)
    assert any(VALUES[0] in image["alt"] for image in page.images)


def test_plots_are_files_and_inlined(sweep):
    folder = sweep / "report"
    names = {path.stem for path in folder.glob("*.png")}
    assert names == {
        *("methods", "differences", "learning_curves", "gain_by_visible_items"),
        *("feature_importance", "gain_by_feature_01", "gain_by_feature_02"),
    }
    assert (folder / "notes.txt").read_text() == "mine"
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    inlined = [base64.b64decode(link.partition(",")[2]) for link in page.links]
    assert {path.read_bytes() for path in folder.glob("*.png")} == set(inlined)
    for data in inlined:
        pixels = image.imread(io.BytesIO(data))[..., :3]
        assert pixels[0, 0] == pytest.approx([1, 1, 1])
        assert (pixels.min(axis=2) < 0.5).mean() > 0.005

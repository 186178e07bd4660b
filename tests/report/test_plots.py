import pytest
from matplotlib.image import imread

from mgs.report.plots import COLOURS, colour, plot_progress

COST = {"MGS-LM": [(0, 70.0), (2, 40.0), (4, 30.0)], "PG-LM (+MLE 0.1)": [(0, 70.0), (4, 90.0)]}


@pytest.mark.parametrize("highest", [25.0, 5000.0])  # the second is drawn on a logarithmic scale
def test_a_picture_is_a_png_with_something_on_it(tmp_path, highest):
    file = tmp_path / "progress.png"
    perplexity = {"MGS-LM": [(0, 22.0), (2, 23.0), (4, 24.0)], "PG-LM (+MLE 0.1)": [(0, 22.0), (4, highest)]}
    plot_progress(COST, perplexity, file, "LM cost (nats)", "a title")
    assert file.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    picture = (imread(file)[:, :, :3] * 255).round().astype(int)
    colours = {tuple(pixel) for row in picture for pixel in row.tolist()}
    assert {(255, 255, 255), *(tuple(bytes.fromhex(COLOURS[name][1:])) for name in ("MGS", "PG"))} <= colours


def test_a_method_has_one_colour_whatever_it_minimises():
    assert colour("MGS-LM") == colour("MGS") == COLOURS["MGS"]
    assert colour("MRT-LM (+MLE 0.1)") == COLOURS["MRT"]
    assert colour("mine") is None


def test_a_run_without_evaluations_still_gives_a_picture(tmp_path):
    plot_progress({"mine": [(0, 1.0)]}, {}, tmp_path / "one.png", "cost")
    assert (tmp_path / "one.png").stat().st_size > 1000

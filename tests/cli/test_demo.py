"""What the demo prints."""

from mgs.cli.demo import show_outputs
from mgs.experiments.demo import DemoResult
from mgs.types import Text


def test_a_prefix_is_marked_as_cut_and_a_sentence_is_not(capsys):
    result = DemoResult("", {}, prefixes=[Text("Ein Satz.")], continuations={"MLE": [Text("A sentence.")]})
    show_outputs(result, [0], ["MLE"])
    show_outputs(result, [0], ["MLE"], whole=True)
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[3]) == ("  Ein Satz. …", "  Ein Satz.")

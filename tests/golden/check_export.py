"""Loads the directories given with the transformers package and compares what they compute in float64 with the
numbers of RPEG beside them (expected.json). Exit 77: the package is not there."""
import json
import pathlib
import sys

try:
    import torch
    import transformers as hf
except ImportError as error:
    print(f"{sys.executable}: {error}")
    sys.exit(77)


def compute(directory, ids):
    config = hf.AutoConfig.from_pretrained(directory)
    is_classifier = config.architectures[0].endswith("ForSequenceClassification")
    auto = hf.AutoModelForSequenceClassification if is_classifier else hf.AutoModelForCausalLM
    model, report = auto.from_pretrained(directory, output_loading_info=True)
    for key in ["missing_keys", "unexpected_keys", "mismatched_keys"]:
        assert not report[key], f"{directory}: {key} {report[key]}"
    assert type(model).__name__ == config.architectures[0]
    model = model.double().eval()
    with torch.no_grad():
        if is_classifier:
            return model.score(model.model(input_ids=ids).last_hidden_state[0])[:, 0]
        return model(input_ids=ids).logits[0].flatten()


for name in sys.argv[1:]:
    expected = json.loads((pathlib.Path(name) / "expected.json").read_text())
    found = compute(name, torch.tensor([expected["ids"]]))
    worst = (found - torch.tensor(expected["values"], dtype=torch.float64)).abs().max().item()
    print(f"{name}: largest difference {worst:.2g}")
    assert worst < 1e-5, name

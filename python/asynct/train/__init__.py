"""Training: tokenizer, data mix, model and the softmax twin (`python -m asynct.train --help`)."""

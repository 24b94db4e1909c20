"""The three stages: pretrain on general text, adapt to the target text, fine-tune on its labels."""

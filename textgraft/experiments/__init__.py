"""Experiments on models: transferability, layer probing, geometry. Nothing else imports them."""

"""The settings: what they are, and how `config.yaml` and the environment give them."""

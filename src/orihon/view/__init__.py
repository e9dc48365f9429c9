"""The web viewer: what a model saw at each call, what was folded, why, and what it cost. It only reads."""

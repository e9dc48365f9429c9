"""Masking: what is stored, summarised, shown or handed on holds no credential."""

from orihon.redaction.known import KnownSecrets
from orihon.redaction.masking import has_mask, mask, masks_in
from orihon.redaction.names import looks_secret
from orihon.redaction.rules import MASKS
from orihon.redaction.walk import mask_value

__all__ = ["MASKS", "KnownSecrets", "has_mask", "looks_secret", "mask", "mask_value", "masks_in"]

"""Masking of credentials in everything that is stored, summarised, shown or passed on."""

from orihon.redaction.key_names import looks_secret
from orihon.redaction.masking import MASKS, KnownSecrets, has_mask, mask, masks_in
from orihon.redaction.structures import mask_value

__all__ = ["MASKS", "KnownSecrets", "has_mask", "looks_secret", "mask", "mask_value", "masks_in"]

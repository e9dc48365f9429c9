"""Masking: what is stored, summarised, shown or handed on holds no credential."""

from orihon.secrets.known import KnownSecrets
from orihon.secrets.masking import has_mask, mask, masks_in
from orihon.secrets.names import looks_secret
from orihon.secrets.rules import MASKS
from orihon.secrets.walk import mask_value

__all__ = ["MASKS", "KnownSecrets", "has_mask", "looks_secret", "mask", "mask_value", "masks_in"]

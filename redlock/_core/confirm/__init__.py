"""An expiry is confirmed by more than one clock (R35)."""

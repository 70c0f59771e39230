"""How an upstream behaves: parsing and checking a profile, its addresses, its references to secrets."""

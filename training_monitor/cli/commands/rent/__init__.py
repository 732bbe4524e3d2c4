"""`rent`: its commands, about rented machines and what trains on them."""

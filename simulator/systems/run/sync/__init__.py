"""How workers keep in step: rounds of all, servers, neighbours; what they exchange, and over which links."""

"""Every family, layout and hash scheme: what they promise, measured on real stores."""

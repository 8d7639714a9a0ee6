"""Real robots: links to them, each vendor's SDK in a process of its own."""

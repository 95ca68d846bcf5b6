"""How fast the console is on this machine, beside what the machine itself can do: `make bench`."""

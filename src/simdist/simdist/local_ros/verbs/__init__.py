"""The commands, one module each; `add_command` adds a command to the parser."""

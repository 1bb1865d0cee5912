"""What this library needs of the interpreter and the machine that it runs on."""

"""How runs look to people: tables, progress, the time left, and the console they are printed on."""

"""READS: turns a YAML policy into the rules of the core, and says all that is wrong with one."""

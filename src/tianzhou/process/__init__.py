"""Resources of this process: open files, freed memory, free ports."""

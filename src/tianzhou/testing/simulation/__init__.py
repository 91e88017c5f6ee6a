"""A simulated cluster from one seed: real servers and clients on simulated machines, networks, disks and clocks."""

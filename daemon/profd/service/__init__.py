"""The whole daemon: its parts are made and joined here, and nowhere else."""

"""What is asked of the kernel: filters, capabilities, descriptors, and uids that no user has."""

"""`make bench`: what capture costs, beside the bare application and beside the disk's own limit, in one run."""

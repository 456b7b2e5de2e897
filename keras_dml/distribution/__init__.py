"""Distribution: what R replicas do as one."""

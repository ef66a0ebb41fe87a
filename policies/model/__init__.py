"""Frozen values that decisions are made from: profiles, devices, jobs, the cluster's snapshot, decisions."""

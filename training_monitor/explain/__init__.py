"""The roll call: what all ranks of one training do, and what that says about a hang."""

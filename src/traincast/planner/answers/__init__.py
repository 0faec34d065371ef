"""What an answer says beside its plans: the recommendation, the reasons, the changes, the prices."""

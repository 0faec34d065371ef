"""Profiles of training steps: what the device of one rank did, beside what the model predicts."""

from traincast.accuracy.profiles.breakdown import ProfiledStep, profile
from traincast.accuracy.profiles.events import DeviceEvents, is_profile, read_events

__all__ = ["DeviceEvents", "ProfiledStep", "is_profile", "profile", "read_events"]

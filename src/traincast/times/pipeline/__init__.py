"""Pipeline schedules: closed forms, order of passes, simulation, and transfers between stages."""

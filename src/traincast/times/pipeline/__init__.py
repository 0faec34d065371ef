"""Pipeline schedules: closed forms, orders pass by pass, simulation, and messages between stages."""

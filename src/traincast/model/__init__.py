"""The description of a transformer: its layers, their sizes and checks, adapters and documents."""

"""Names and files made into models, systems and software stacks; and the data itself."""

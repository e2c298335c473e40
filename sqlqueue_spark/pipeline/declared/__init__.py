"""What the five jobs differ in, declared once, and what each runs."""

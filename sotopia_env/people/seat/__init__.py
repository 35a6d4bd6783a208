"""The page of a person in a seat: its forms, and what outcomes are worth to the seat."""

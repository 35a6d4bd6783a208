"""What else training changes: toxicity, ethics and knowledge before and after it, and tasks about an injury.

The measures are those of SOTOPIA-RL (table 4) and SOTOPIA-π (tables 3 and 4).
"""

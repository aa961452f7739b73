"""Hundreds of small runs from code: started once, two at a time for each customer, counted."""

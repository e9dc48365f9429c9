"""A basket: articles and how many of each."""

from shop.prices import gross


class Basket:
    """What one customer wants to buy."""

    def __init__(self, lines=[]):
        self.lines = lines

    def put(self, article, count=1):
        """Put so many of an article into the basket."""
        self.lines.append((article, count))

    def total(self):
        """What all of it costs, in cents."""
        return sum(gross(article) * count for article, count in self.lines)

"""The checkout: a basket becomes an order, with a discount for large ones."""

from shop.basket import Basket

LARGE, DISCOUNT_PERCENT = 10_000, 5


def to_pay(basket):
    """What is paid: the total, less the discount of a large order."""
    total = basket.total()
    return total - total * DISCOUNT_PERCENT // 100 if total >= LARGE else total


def order(wishes, saved=None):
    """What is paid for these pairs of an article and how many of it; a known customer has some saved already."""
    basket = Basket() if saved is None else Basket(list(saved))
    for article, count in wishes:
        basket.put(article, count)
    return to_pay(basket)

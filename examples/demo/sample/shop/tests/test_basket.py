"""Baskets and the checkout."""

import unittest

from shop.basket import Basket
from shop.checkout import order


class BasketTest(unittest.TestCase):
    def test_adds_up(self):
        basket = Basket()
        basket.put("red-apple")
        basket.put("blue-hat", 2)
        self.assertEqual(basket.total(), 119 + 2 * 453)

    def test_empty_costs_nothing(self):
        self.assertEqual(Basket().total(), 0)

    def test_given_lines(self):
        self.assertEqual(Basket([("red-apple", 3)]).total(), 357)


class CheckoutTest(unittest.TestCase):
    def test_large_orders_cost_less(self):
        self.assertEqual(order([("red-apple", 100)]), 11_305)

    def test_nothing_is_free(self):
        self.assertEqual(order([]), 0)


if __name__ == "__main__":
    unittest.main()

"""The price of every article: one test for each of them."""

import unittest
from itertools import product

from shop.prices import COLOURS, NAMES, gross, net


class PricesTest(unittest.TestCase):
    pass


def test_of(article):
    def test(self):
        exact = net(article) * 1.19
        self.assertLessEqual(abs(gross(article) - exact), 0.5)

    return test


for colour, name in product(COLOURS, NAMES):
    setattr(PricesTest, f"test_{colour}_{name}_is_rounded_as_it_should_be", test_of(f"{colour}-{name}"))
